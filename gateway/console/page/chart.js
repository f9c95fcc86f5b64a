// chart.js - lines, areas and bars (uPlot), in the colours of the theme; a chart says in words what it shows.
'use strict';

const chart = (() => {
	const colour = name =>
		getComputedStyle(document.documentElement)
			.getPropertyValue('--' + name)
			.trim();
	const fade = (value, alpha) => {
		const n = parseInt(value.slice(1), 16);
		return 'rgba(' + (n >> 16) + ',' + ((n >> 8) & 255) + ',' + (n & 255) + ',' + alpha + ')';
	};
	const short = value => {
		const size = Math.abs(value);
		return size >= 1e9
			? +(value / 1e9).toFixed(1) + 'G'
			: size >= 1e6
				? +(value / 1e6).toFixed(1) + 'M'
				: size >= 1e4
					? +(value / 1e3).toFixed(1) + 'k'
					: String(+value.toPrecision(3));
	};

	// Steps of a time axis in seconds.
	const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600];

	// Charts that get their first data: all widths are read before anything is drawn, so that the page is laid out once.
	let due = [];
	function buildSoon(holder, build) {
		if (due.some(one => one.holder === holder)) return;
		if (!due.length)
			queueMicrotask(() => {
				const list = due,
					widths = list.map(one => one.holder.clientWidth);
				due = [];
				list.forEach((one, i) => one.build(widths[i]));
			});
		due.push({holder, build});
	}

	// zoom: from little below the least value, not from 0.
	// series: [{label, c: 1..6, area, dash, bars, stack, show: value -> text}]; x: {time: true} or {label, show}
	// marks(): [{at, label, c}], vertical lines. The node has set([xs, ys...]), redraw() for marks that moved, and say(words).
	function draw(scope, {label, series, x = {time: true}, unit, height = 180, marks, top, zoom}) {
		const holder = el('div.plot', {role: 'img', 'aria-label': label});
		const values = series.map(() => el('b'));
		const names = series.map((one, i) =>
			el('li', el('span.swatch.k' + one.c + (one.dash ? '.dash' : '')), one.label, values[i])
		);
		const at = el('li.muted'),
			zeros = el('li.muted.zeros', {hidden: true});
		const legend = el('ul.legend', names, at, zeros);
		const node = el('figure.chart', holder, el('figcaption', legend));
		let plot = null,
			data = null,
			raw = null;
		const shown = (i, value) =>
			value === null || value === undefined
				? format.missing
				: series[i].show
					? series[i].show(value)
					: short(value);
		const stacked = series.some(one => one.stack);

		function say(index) {
			series.forEach((one, i) => dom.text(values[i], raw && index !== null ? shown(i, raw[i + 1][index]) : ''));
			dom.text(
				at,
				raw && index !== null
					? x.time
						? format.clock(raw[0][index] * 1000)
						: (x.label || '') + ' ' + (x.show || short)(raw[0][index])
					: ''
			);
		}

		function last() {
			if (!raw || x.time !== true || !raw[0].length) return say(null);
			say(raw[0].length - 1);
		}

		function pile(columns) {
			if (!stacked) return columns;
			const sum = new Array(columns[0].length).fill(0);
			const out = columns.slice();
			for (let i = columns.length - 1; i >= 1; i--)
				if (series[i - 1].stack) {
					out[i] = columns[i].map((value, k) =>
						value === null && sum[k] === 0 ? value : (sum[k] += value || 0)
					);
				}
			return out;
		}

		// A series of nothing but zeros is not drawn, and said to be none.
		const drawn = i => !raw[0].length || raw[i + 1].some(Boolean);
		function leaveOut() {
			const not = series.filter((one, i) => !drawn(i));
			names.forEach((name, i) => {
				name.hidden = !drawn(i);
				if (plot && plot.series[i + 1].show === name.hidden) plot.setSeries(i + 1, {show: !name.hidden});
			});
			zeros.hidden = !not.length;
			dom.text(zeros, 'hidden, all zero or unknown: ' + not.map(one => one.label).join(', '));
		}

		function lines(u) {
			if (!marks) return;
			const ctx = u.ctx,
				scale = devicePixelRatio;
			const all = marks(),
				placeOf = mark => u.valToPos(mark.at, 'x', true);
			const seen = all.filter(
				mark => placeOf(mark) >= u.bbox.left && placeOf(mark) <= u.bbox.left + u.bbox.width
			);
			ctx.save();
			ctx.lineWidth = 1.5 * scale;
			ctx.setLineDash([4 * scale, 3 * scale]);
			for (const mark of seen) {
				ctx.strokeStyle = colour(mark.c || 'text');
				ctx.beginPath();
				ctx.moveTo(placeOf(mark), u.bbox.top);
				ctx.lineTo(placeOf(mark), u.bbox.top + u.bbox.height);
				ctx.stroke();
			}
			ctx.restore();
			for (const mark of seen) {
				const place = placeOf(mark);
				ctx.save();
				ctx.font = 11 * scale + 'px system-ui, sans-serif';
				// its words stand to the right, but where that is the edge or another mark; over a line where there is no room
				const wide = ctx.measureText(mark.label).width + 9 * scale,
					end = Math.min(u.bbox.left + u.bbox.width, ...all.map(placeOf).filter(other => other > place));
				const left = place + wide > end && place - wide > u.bbox.left;
				const words = [
					mark.label,
					place + (left ? -5 : 5) * scale,
					u.bbox.top + (12 + (mark.row || 0) * 14) * scale
				];
				ctx.textAlign = left ? 'right' : 'left';
				ctx.fillStyle = colour('surface');
				if (mark.label)
					ctx.fillRect(
						words[1] - (left ? wide - 7 * scale : 2 * scale),
						words[2] - 10 * scale,
						wide - 5 * scale,
						13 * scale
					);
				ctx.fillStyle = colour(mark.c || 'text');
				ctx.fillText(...words);
				ctx.restore();
			}
		}

		function build(width = holder.clientWidth) {
			plot?.destroy();
			plot = null;
			if (!data || width < 40) return;
			const axis = {
				stroke: colour('muted'),
				font: '11px system-ui, sans-serif',
				grid: {stroke: colour('grid'), width: 1},
				ticks: {show: false}
			};
			plot = new uPlot(
				{
					width,
					height,
					legend: {show: false},
					padding: [14, 24, 0, 0],
					scales: {
						x: {time: x.time === true},
						y: {
							range: (u, low, high) => [
								zoom ? Math.max(0, Math.floor((low - 0.02) * 20) / 20) : 0,
								top || (high > 0 ? high * 1.08 : 1)
							]
						}
					},
					cursor: {y: false, drag: {x: false, y: false}, points: {show: false}},
					axes: [
						{
							...axis,
							space: 70,
							size: 26,
							incrs: x.time ? steps : undefined,
							values: x.time
								? (u, ticks) =>
										ticks.map(s =>
											format.clock(s * 1000).slice(0, ticks[1] - ticks[0] < 60 ? 8 : 5)
										)
								: (u, ticks) => ticks.map(x.show || short)
						},
						{
							...axis,
							size: 52,
							gap: 4,
							values: (u, ticks) => ticks.map(value => (unit ? unit(value) : short(value)))
						}
					],
					series: [
						{},
						...series.map((one, i) => {
							const ink = colour('c' + one.c);
							return {
								label: one.label,
								show: drawn(i),
								stroke: ink,
								width: one.bars ? 0 : 1.75,
								dash: one.dash,
								points: one.bars || one.stack ? {show: false} : {size: 4, fill: ink}, // where points are few
								spanGaps: !x.time, // a curve may have points of its own; a time without a figure is a gap
								fill: one.bars
									? ink
									: one.stack
										? fade(ink, 0.55)
										: one.area
											? fade(ink, 0.14)
											: undefined,
								paths: one.bars ? uPlot.paths.bars({size: [0.9, 40], align: 0}) : undefined
							};
						})
					],
					hooks: {
						draw: [lines],
						setCursor: [
							u => (u.cursor.idx === null || u.cursor.idx === undefined ? last() : say(u.cursor.idx))
						]
					}
				},
				data,
				holder
			);
			last();
		}

		const sized = new ResizeObserver(() => {
			if (!data) return;
			if (plot && Math.abs(plot.width - holder.clientWidth) < 2) return;
			if (plot && holder.clientWidth >= 40) plot.setSize({width: holder.clientWidth, height});
			else build();
		});
		sized.observe(holder);
		scope.end(() => {
			sized.disconnect();
			plot?.destroy();
			plot = null;
		});
		scope.on(document, 'theme', () => build());
		holder.style.minHeight = height + 'px';

		node.set = columns => {
			raw = columns;
			data = pile(columns);
			leaveOut();
			if (!plot) return buildSoon(holder, build);
			plot.setData(data);
			if (plot.cursor.idx === null || plot.cursor.idx === undefined) last();
		};
		node.redraw = () => plot?.redraw(false);
		node.say = words => holder.setAttribute('aria-label', label + ': ' + words);
		return node;
	}

	const percent = value => short(value * 100) + ' %';

	return {draw, colour, percent};
})();
