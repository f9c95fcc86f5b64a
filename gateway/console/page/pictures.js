// pictures.js - what a look-up and a search did, drawn.
'use strict';

const pictures = (() => {
	let wide = 640; // as many units as the picture will have pixels, so that letters keep their size
	const picture = (label, height, ...parts) =>
		svg('svg', {viewBox: '0 0 ' + wide + ' ' + height, role: 'img', 'aria-label': label, width: '100%'}, parts);

	const fit = () => {
		wide = Math.max(260, Math.min(760, document.getElementById('main').clientWidth - 62));
	};

	// Candidates on the line of similarity, with the threshold: who reached it, whom a guard held back, who was too far.
	function candidates(list, threshold) {
		fit();
		const near = list.filter(one => format.known(one.similarity));
		const low = Math.max(
			0,
			Math.min(0.9, threshold <= 1 ? threshold - 0.05 : 1, ...near.map(one => one.similarity)) - 0.02
		);
		const place = value => 16 + ((Math.max(low, Math.min(1, value)) - low) / (1 - low)) * (wide - 32);
		const ticks = [];
		const step = 1 - low > 0.5 ? 0.2 : 1 - low > 0.2 ? 0.1 : 0.05;
		for (let at = Math.ceil(low / step - 1e-9) * step; at <= 1.0001; at += step) ticks.push(at);
		return picture(
			'Similarity of ' +
				near.length +
				' candidates from ' +
				low.toFixed(2) +
				' to 1; threshold ' +
				format.similarity(threshold),
			92,
			svg('line.axis', {x1: 16, x2: wide - 16, y1: 60, y2: 60}),
			ticks.map(at =>
				svg('text', {x: place(at), y: 78, 'text-anchor': at > 0.999 ? 'end' : 'middle'}, at.toFixed(2))
			),
			threshold <= 1
				? [
						svg('rect.f2', {
							x: place(threshold),
							y: 30,
							width: Math.max(0, wide - 16 - place(threshold)),
							height: 30,
							opacity: 0.14
						}),
						svg('line.mark', {x1: place(threshold), x2: place(threshold), y1: 22, y2: 62}),
						svg(
							'text.ink',
							{x: Math.max(60, Math.min(wide - 90, place(threshold))), y: 16, 'text-anchor': 'middle'},
							'threshold ' + format.similarity(threshold)
						)
					]
				: svg(
						'text.ink',
						{x: wide - 16, y: 16, 'text-anchor': 'end'},
						'no threshold yet: nothing is served by similarity'
					),
			near.map(one =>
				svg(
					'circle.' + (tone(one.verdict) === 'good' ? 'f2' : tone(one.verdict) === 'warn' ? 'f3' : 'f5'),
					{cx: place(one.similarity), cy: 45, r: 6, opacity: 0.85},
					svg('title', format.similarity(one.similarity) + ' ' + one.verdict)
				)
			)
		);
	}

	const tone = verdict => (/^served/.test(verdict || '') ? 'good' : /guard/.test(verdict || '') ? 'warn' : '');

	// Bars one after the other that add up to a whole: [[label, microseconds, kind], ...].
	function times(label, list) {
		fit();
		const parts = list.filter(([, value]) => value > 0);
		const total = parts.reduce((sum, [, value]) => sum + value, 0);
		if (!total) return el('p.muted', 'No time was measured.');
		let at = 0;
		return el(
			'div.stack',
			picture(
				label + ': ' + parts.map(([name, value]) => name + ' ' + format.micros(value)).join(', '),
				30,
				parts.map(([name, value, kind]) => {
					const width = (value / total) * wide,
						bar = svg(
							'rect.f' + kind,
							{x: at, y: 4, width: Math.max(1.5, width - 1), height: 22, rx: 2},
							svg('title', name + ' ' + format.micros(value))
						);
					at += width;
					return bar;
				})
			),
			el(
				'ul.legend',
				parts.map(([name, value, kind]) =>
					el(
						'li',
						el('span.swatch.k' + kind),
						name,
						' ',
						el('b', format.micros(value)),
						' ',
						el('span', format.share(value / total))
					)
				)
			)
		);
	}

	// Rounds of a search: a column for each wait for the disk, a square for each block (all rounds alike: the reply counts both
	// as sums). Beyond what can be drawn a square stands for several.
	function rounds(reads, rounds) {
		fit();
		const most = 240,
			each = Math.max(1, Math.ceil(reads / most));
		const squares = Math.ceil(reads / each),
			columns = Math.max(1, rounds);
		const room = wide / columns,
			side = Math.max(4, Math.min(12, room / 3 - 2)),
			gap = 2;
		const out = [];
		let tallest = 1,
			done = 0;
		for (let i = 0; i < columns; i++) {
			const n = Math.floor((squares * (i + 1)) / columns) - done;
			done += n;
			const across = Math.max(1, Math.floor((room - 6) / (side + gap)));
			tallest = Math.max(tallest, Math.ceil(n / across));
			for (let k = 0; k < n; k++)
				out.push(
					svg('rect.f1', {
						x: i * room + (k % across) * (side + gap),
						y: 22 + Math.floor(k / across) * (side + gap),
						width: side,
						height: side,
						rx: 1.5
					})
				);
			if (i < 20 || columns <= 40) out.push(svg('text', {x: i * room, y: 14}, columns > 24 ? '' : String(i + 1)));
			out.push(svg('line.axis', {x1: i * room - 3, x2: i * room - 3, y1: 4, y2: 22 + tallest * (side + gap)}));
		}
		return el(
			'div.stack',
			picture(reads + ' blocks read in ' + rounds + ' rounds', 26 + tallest * (side + gap), out),
			el(
				'p.muted.small',
				'A column is a round (one wait for the disk), a square ' +
					(each === 1 ? 'a block' : each + ' blocks') +
					'; the reply says how many there were, not which came when: they are drawn evenly.'
			)
		);
	}

	// Bars beside each other, for quantities of one kind: [[label, value, shown, kind], ...].
	function bars(label, list) {
		const most = Math.max(1e-12, ...list.map(([, value]) => value || 0));
		return el(
			'dl.pairs',
			{'aria-label': label},
			list.map(([name, value, shown, kind]) => [
				el('dt', name),
				el(
					'dd',
					el(
						'div.bar-of',
						svg(
							'svg',
							{
								viewBox: '0 0 200 12',
								width: 200,
								height: 12,
								preserveAspectRatio: 'none',
								'aria-hidden': 'true'
							},
							svg('rect.f0', {x: 0, y: 1, width: 200, height: 10, rx: 2}),
							svg('rect.f' + (kind || 1), {
								x: 0,
								y: 1,
								width: ((value || 0) / most) * 200,
								height: 10,
								rx: 2
							})
						),
						el('span', shown)
					)
				)
			])
		);
	}

	return {candidates, times, rounds, bars, tone};
})();
