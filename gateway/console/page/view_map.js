// view_map.js - view 10: a sample of a set, or of a cache's questions, in the plane in which it differs most.
'use strict';

shell.view({
	id: 'map',
	key: '0',
	title: 'Map',
	lead: 'A sample of a vector set or of a cache, in the two directions in which it differs most.',
	async open({scope, body, args, state, pick}) {
		const sets = (await allSets(scope)).sets
			.filter(one => one.size > 0)
			.map(one => ['set', one.name, null, one.metric]);
		const caches = (await scope.get('caches')).caches
			.filter(one => !one.info?.error && one.info.entries > 0)
			.map(one => ['cache', one.name, ['', ...one.info.categories]]);
		const all = [...sets, ...caches],
			of = (kind, name) => all.find(one => one[0] === kind && one[1] === name);
		if (!all.length) return dom.fill(body, parts.card('Begin here', noSet()));
		const [kind, name, categories, metric] = of(args[0], args[1]) || of(...(state.of || [])) || all[0];
		const category = categories?.includes(args[2]) ? args[2] : '',
			isSet = kind === 'set';
		state.of = [kind, name];
		pick.append(
			parts.field(
				'Set or cache',
				parts.select(
					all.map((one, i) => [String(i), one[0] + ' ' + one[1]]),
					String(all.indexOf(of(kind, name))),
					i => shell.go('map', ...all[i].slice(0, 2))
				)
			)
		);
		if (categories)
			pick.append(
				parts.field(
					'Category',
					parts.select(
						categories.map(one => [one, one || 'all']),
						category,
						other => shell.go('map', kind, name, ...(other ? [other] : []))
					)
				)
			);
		const said = el('p.muted', {role: 'status'}, 'The sample is read ...');
		const canvas = el('canvas.map', {tabIndex: 0, role: 'img'});
		const holder = el('div.plot', {style: 'height: min(62vh, 620px)'}, canvas);
		const legend = el('ul.legend'),
			untold = el('div', {role: 'status'}),
			chosen = el('div', {'aria-live': 'polite'}),
			askForm = el('div'),
			answer = el('div.stack', {'aria-live': 'polite'});
		const colourPick = el('div');
		dom.fill(
			body,
			el('section.card', {'aria-label': 'Map'}, el('header', said, colourPick), holder, legend, untold),
			el(
				'div.cols',
				parts.cardWith('Ask', 'and see where the question lies', askForm, answer),
				parts.cardWith('Chosen', 'click, or arrow keys on the map', chosen)
			)
		);

		const got = await scope.get('map', {[kind]: name, category, count: 2000});
		const n = got.elements.length,
			dim = got.dimensions;
		if (n < 3) return dom.text(said, 'A map needs three vectors; here are ' + n + '.');
		const rows = plane.decode(got.vectors);
		for (let i = 0; i < n; i++) for (let k = 0; k < dim; k++) rows[i * dim + k] *= got.scale[i];
		const flat = await plane.find(rows, n, dim, () => scope.signal.aborted);
		dom.text(said, '');
		dom.fill(
			said,
			format.count(n) +
				(n < got.size && !category ? ' of ' + format.count(got.size) : '') +
				(isSet ? ' elements' : ' entries with a vector') +
				'. The plane holds ',
			el('b', format.share(flat.share)),
			' of the ',
			parts.meant('variance', 'variance'),
			flat.share < 0.3 ? ': much of what is near by its vectors is far here, and the other way round.' : '.'
		);

		const attributes = got.elements.map(isSet ? attributesOf : entryAttributes);
		const granted = 'tenant (granted to)'; // not an attribute: whom elements of a set are granted to
		const isGranted = got.elements.some(one => one.tenants?.length);
		const valueOf = (i, key) =>
			key !== granted ? attributes[i][key] : got.elements[i].tenants?.join(' + ') || undefined;
		const names = [...new Set(attributes.flatMap(Object.keys))]
			.filter(key => attributes.some(one => ['string', 'number', 'boolean'].includes(typeof one[key])))
			.slice(0, 20);
		if (isSet) names[isGranted ? 'unshift' : 'push'](granted);
		state.colour = names.includes(state.colour)
			? state.colour
			: names.find(
					key =>
						/tenant|categ|kind|type|label|class/i.test(key) &&
						!(key === 'category' && category) &&
						(key !== granted || isGranted)
				) || (names[0] === granted && !isGranted ? '' : names[0] || '');
		let classes = [],
			kinds = new Array(n).fill(1),
			at = -1;
		const colours = parts.select(
			[['', 'one colour'], ...names.map(key => [key, 'colour by ' + key])],
			state.colour,
			value => {
				state.colour = value;
				classify();
				draw();
			}
		);
		colours.setAttribute('aria-label', 'Colour by');
		dom.fill(colourPick, colours);

		// Words: the five most frequent and the rest; numbers: five ranges of equal counts.
		function classify() {
			const key = state.colour;
			classes = [];
			kinds.fill(1);
			if (key) {
				const values = got.elements.map((_, i) => valueOf(i, key)),
					numbers = values.filter(value => typeof value === 'number');
				if (numbers.length > n / 2 && new Set(numbers).size > 6) {
					const sorted = [...numbers].sort((a, b) => a - b),
						cuts = [0.2, 0.4, 0.6, 0.8].map(q => sorted[Math.floor(q * (sorted.length - 1))]);
					classes = [0, 1, 2, 3, 4].map(i => [
						i + 1,
						format.digits(i ? cuts[i - 1] : sorted[0]) +
							' to ' +
							format.digits(i < 4 ? cuts[i] : sorted.at(-1))
					]);
					values.forEach((value, i) => {
						kinds[i] = typeof value === 'number' ? 1 + cuts.filter(cut => value > cut).length : 6;
					});
				} else {
					const count = new Map();
					for (const value of values) count.set(String(value), (count.get(String(value)) || 0) + 1);
					const top = [...count]
						.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
						.slice(0, 5)
						.map(([value]) => value);
					classes = top.map((value, i) => [
						[1, 2, 3, 4, 6][i],
						(value !== 'undefined' ? value : key === granted ? 'nobody' : 'without') +
							' (' +
							count.get(value) +
							')'
					]);
					if (count.size > 5)
						classes.push([
							5,
							'others (' +
								[...count]
									.filter(([value]) => !top.includes(value))
									.reduce((sum, [, c]) => sum + c, 0) +
								')'
						]);
					values.forEach((value, i) => {
						const place = top.indexOf(String(value));
						kinds[i] = place < 0 ? 5 : [1, 2, 3, 4, 6][place];
					});
				}
			}
			const none = key === granted && !isGranted;
			dom.fill(legend, none ? null : classes.map(([kind, label]) => el('li', el('span.swatch.k' + kind), label)));
			dom.fill(untold, none ? noGrants(name, got.tenants?.error) : null);
		}

		// Points n and beyond: what was asked.
		let asked = null;
		const xs = [...flat.xs],
			ys = [...flat.ys];
		const reach = () =>
			[xs, ys].map(all => {
				const low = Math.min(...all);
				return [low, Math.max(...all) - low || 1];
			});
		let frame = reach();
		const spot = (i, box) =>
			[xs, ys].map(
				(all, axis) =>
					14 + ((all[i] - frame[axis][0]) / frame[axis][1]) * ((axis ? box.height : box.width) - 28)
			);

		function draw() {
			const box = holder.getBoundingClientRect(),
				scale = devicePixelRatio || 1;
			if (box.width < 20) return;
			canvas.width = Math.round(box.width * scale);
			canvas.height = Math.round(box.height * scale);
			const ctx = canvas.getContext('2d');
			ctx.scale(scale, scale);
			ctx.fillStyle = chart.colour('bg');
			ctx.fillRect(0, 0, box.width, box.height);
			const inks = [0, 1, 2, 3, 4, 5, 6].map(c => (c ? chart.colour('c' + c) : ''));
			const radius = n > 800 ? 2.6 : n > 200 ? 3.5 : 5;
			ctx.globalAlpha = n > 800 ? 0.7 : 0.85;
			for (let i = 0; i < n; i++) {
				const [x, y] = spot(i, box);
				ctx.fillStyle = inks[kinds[i]];
				ctx.beginPath();
				ctx.arc(x, y, radius, 0, 7);
				ctx.fill();
			}
			ctx.globalAlpha = 1;
			// lines to the nearest, and a ring, or for what was asked a square
			const star = (from, list, ink, square) => {
				const [x, y] = spot(from, box),
					r = radius + 4;
				ctx.strokeStyle = chart.colour(ink);
				ctx.lineWidth = 1;
				ctx.beginPath();
				for (const [, j] of list) {
					ctx.moveTo(x, y);
					ctx.lineTo(...spot(j, box));
				}
				ctx.stroke();
				ctx.lineWidth = 2;
				ctx.beginPath();
				if (square) ctx.rect(x - r, y - r, 2 * r, 2 * r);
				else ctx.arc(x, y, r, 0, 7);
				ctx.stroke();
			};
			if (at >= 0) star(at, near(rows.subarray(at * dim, at * dim + dim), at), 'text');
			if (asked) star(n, asked.near, 'accent', true);
		}

		// The five nearest of the sample, by their whole vectors: [score as the server gives it, point].
		function near(vector, but) {
			const found = [];
			let own = 0;
			for (let k = 0; k < dim; k++) own += vector[k] ** 2;
			for (let j = 0; j < n; j++)
				if (j !== but) {
					let dot = 0,
						other = 0;
					for (let k = 0; k < dim; k++) {
						dot += vector[k] * rows[j * dim + k];
						other += rows[j * dim + k] ** 2;
					}
					const cosine = dot / (Math.sqrt(own * other) || 1);
					found.push([
						!isSet
							? cosine
							: metric === 'l2'
								? 1 / (1 + Math.max(0, own + other - 2 * dot))
								: metric === 'ip'
									? dot
									: (1 + cosine) / 2,
						j
					]);
				}
			return found.sort((a, b) => b[0] - a[0]).slice(0, 5);
		}
		const score = metric === 'ip' ? format.digits : format.similarity;
		const named = list =>
			el(
				'span',
				list.map(([value, words], k) => [k ? ', ' : '', words + ' ', el('span.muted', score(value))])
			);
		const nearest = list => named(list.map(([value, j]) => [value, label(got.elements[j])]));
		const label = one => one.element ?? (one.text || one.id).slice(0, 60);

		function choose(i) {
			at = i;
			draw();
			const one = got.elements[i];
			canvas.setAttribute('aria-label', 'Map of ' + n + ' points; ' + label(one) + ' is chosen');
			dom.fill(
				chosen,
				parts.pairs([
					isSet ? ['Element', one.element] : ['Question', one.text || '(no text)'],
					['Attributes', el('code', JSON.stringify(attributes[i]))],
					one.tenants ? ['Granted to', one.tenants.join(', ') || 'nobody', 'tenants'] : null,
					['Nearest of the sample', nearest(near(rows.subarray(i * dim, i * dim + dim), i))]
				]),
				el(
					'div',
					el(
						'a.button',
						{
							href: '#/playground',
							onclick: () =>
								shell.keep(
									'playground',
									isSet
										? {kind: 'set', set: name, by: 'element', query: one.element}
										: {
												kind: 'cache',
												cache: name,
												category: one.category,
												text: one.text || '',
												scope: one.scope || ''
											}
								)
						},
						isSet ? 'Search by it in the playground' : 'Ask it in the playground'
					)
				)
			);
		}

		// A question in the plane: {label, query: its vector, found: [[name, score]]}, lines to the nearest of the sample, and which of
		// those that the server has found are no points here.
		function showAsked(what) {
			state.asked = null;
			asked = null;
			xs.length = ys.length = n;
			if (what.query?.length !== dim)
				dom.fill(
					answer,
					parts.note('It has no place here. ' + (what.why || 'It has no vector (any more).'), 'warn')
				);
			else {
				state.asked = what;
				const vector = Float32Array.from(what.query);
				// only the direction counts but for l2 and ip: as long as those of the sample are
				if (!isSet || metric === 'cosine') {
					let mean = 0;
					for (let i = 0; i < n; i++) mean += Math.hypot(...rows.subarray(i * dim, i * dim + dim)) / n;
					const length = Math.hypot(...vector) || 1;
					for (let k = 0; k < dim; k++) vector[k] *= mean / length;
				}
				[xs, ys].forEach((all, axis) =>
					all.push(vector.reduce((sum, value, k) => sum + (value - flat.mean[k]) * flat.axes[axis][k], 0))
				);
				const place = new Map(got.elements.map((one, i) => [one.element ?? one.id, i]));
				asked = {near: near(vector, place.get(what.label))};
				const outside = what.found.filter(([one]) => !place.has(one)),
					inside = what.found.filter(([one]) => place.has(one));
				dom.fill(
					answer,
					parts.pairs([
						['Asked (the square)', what.label],
						['Nearest of the sample (the lines)', nearest(asked.near)],
						[
							'Found by the server',
							inside.length
								? named(inside.map(([one, value]) => [value, label(got.elements[place.get(one)])]))
								: 'none that is in the sample'
						]
					]),
					el(
						'p',
						outside.length
							? [
									outside.length +
										' of the ' +
										what.found.length +
										' that the server found are outside the sample, and no point stands for them: ',
									named(outside.map(([one, value]) => [value, one])),
									'.'
								]
							: what.found.length
								? 'All that the server found are in the sample.'
								: 'The server found nothing.'
					)
				);
			}
			frame = reach();
			draw();
		}

		function drawForm() {
			if (!isSet && !category)
				return dom.fill(askForm, el('p.muted', 'A question belongs to a category: choose one above.'));
			let by = 'element';
			const query = el('input', {type: 'text', name: 'query', required: true, spellcheck: false}),
				pairs = el('input', {
					type: 'text',
					name: 'scope',
					placeholder: 'tenant=acme user=7',
					spellcheck: false
				}),
				button = el('button', {type: 'submit'}, 'Show it');
			const ask = async () =>
				isSet
					? foundInSet(
							await scope.post('playground/set', {set: name, ...queryOf(by, query.value), query: true})
						)
					: foundInCache(
							await scope.post('playground/cache', {
								cache: name,
								category,
								text: query.value,
								scope: scopeOf(pairs.value),
								query: true
							})
						);
			dom.fill(
				askForm,
				el(
					'form.grid',
					{
						onsubmit: async event => {
							event.preventDefault();
							button.disabled = true;
							try {
								showAsked({where, label: query.value.trim(), ...(await ask())});
							} catch (error) {
								if (!scope.signal.aborted) dom.fill(answer, parts.note(error.message, 'bad'));
							}
							button.disabled = false;
						}
					},
					isSet
						? parts.field(
								'Asked by',
								parts.select(
									[
										['element', 'element or vector'],
										['text', 'text']
									],
									by,
									value => (by = value)
								)
							)
						: parts.field('Scope', pairs),
					parts.field(isSet ? 'Element, numbers or words' : 'Question', query),
					button
				)
			);
		}
		const where = [kind, name, ...(category ? [category] : [])].join('/');

		scope.on(canvas, 'click', event => {
			const box = holder.getBoundingClientRect(),
				x = event.clientX - box.left,
				y = event.clientY - box.top;
			let best = -1,
				least = 400;
			for (let i = 0; i < n; i++) {
				const [px, py] = spot(i, box),
					away = (px - x) ** 2 + (py - y) ** 2;
				if (away < least) [least, best] = [away, i];
			}
			if (best >= 0) choose(best);
		});
		scope.on(canvas, 'keydown', event => {
			const way = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
			if (!way) return;
			event.preventDefault();
			if (at < 0) return choose(0);
			const box = holder.getBoundingClientRect(),
				[x, y] = spot(at, box);
			let best = at,
				least = Infinity;
			for (let i = 0; i < n; i++) {
				const [px, py] = spot(i, box),
					along = (px - x) * way[0] + (py - y) * way[1],
					across = Math.abs((px - x) * way[1]) + Math.abs((py - y) * way[0]);
				if (along > 0.5 && along + 2 * across < least) [least, best] = [along + 2 * across, i];
			}
			choose(best);
		});
		const sized = new ResizeObserver(draw);
		sized.observe(holder);
		scope.end(() => sized.disconnect());
		scope.on(document, 'theme', draw);
		canvas.setAttribute(
			'aria-label',
			'Map of ' + n + ' points; the plane holds ' + format.share(flat.share) + ' of the variance'
		);
		dom.fill(chosen, el('p.muted', 'None is chosen.'));
		classify();
		drawForm();
		if (state.asked?.where === where) showAsked(state.asked);
		else draw();
	}
});

// Why no tenant gives a colour, and what would: the server does not tell this user, or nothing is granted.
const noGrants = (set, error) =>
	error
		? parts.note('Whom elements are granted to is for administrators: ' + error.message, 'warn')
		: parts.empty(
				'No element of the sample is granted to a tenant.',
				'Grant an element of the set, or name a tenant where one is added (VADD ... TENANT acme):',
				'redis-cli VGRANT ' + set + ' ELEMENT acme'
			);

function attributesOf(one) {
	try {
		const value = typeof one.attributes === 'string' ? JSON.parse(one.attributes) : one.attributes;
		return value && typeof value === 'object' ? value : {};
	} catch {
		return {};
	}
}

// By what an entry can be coloured: its category, the keys of its scope, hits and age.
function entryAttributes(one) {
	const out = {category: one.category};
	for (const [, key, value] of (one.scope || '').matchAll(/(\S+?)=(.*?)(?= \S+?=|$)/g)) out[key] = value;
	return {...out, hits: one.hits, 'age, minutes': Math.round(one.age_ms / 60000), pinned: one.pinned ? 'yes' : 'no'};
}
