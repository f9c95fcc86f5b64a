// view_sets.js - view 8: what vector sets are made of, what they hold in memory, how recall follows from effort.
'use strict';

shell.view({
	id: 'sets',
	key: '8',
	title: 'Sets',
	lead: 'Vector sets: segments, memory, recall, merges.',
	async open({scope, body, args, state}) {
		const figures = parts.figures([
			['rows', 'Elements', 'rows'],
			['memory', 'In memory', 'memory'],
			['disk', 'On the disk', 'disk'],
			['reads', 'Reads a search', 'reads'],
			['rounds', 'Rounds a search', 'rounds'],
			['work', 'Under way', 'segments'],
			['merges', 'Merges', 'segments']
		]);
		const table = parts.table({
			caption: 'Vector sets',
			key: row => row.name,
			empty: noSet(),
			columns: [
				{
					title: 'Set',
					kind: 'text',
					sort: row => row.name,
					cell: row =>
						el(
							'a',
							{
								href: shell.link('sets', row.name),
								'aria-current': row.name === state.key ? 'true' : null
							},
							row.name
						)
				},
				{title: 'Elements', num: true, sort: row => row.size, cell: row => format.count(row.size)},
				{
					title: 'Dimensions',
					num: true,
					cell: row => [
						String(row['vector-dim']),
						el('div.muted.small', row['vector-type'] + ' ' + row.metric)
					]
				},
				{
					title: 'Segments',
					num: true,
					meaning: 'segments',
					cell: row => [
						format.count(row.segments),
						el('div.muted.small', row.segments ? row.index : 'none yet')
					]
				},
				{title: 'Rows in memory', num: true, cell: row => format.count(row['memory-rows'])},
				{title: 'Dead', num: true, meaning: 'dead-rows', cell: row => format.count(row['dead-rows'])},
				{
					title: 'Memory',
					num: true,
					meaning: 'memory',
					sort: row => row['memory-bytes'] + row['resident-bytes'],
					cell: row => [format.bytes(row['memory-bytes'] + row['resident-bytes']), ...memoryParts(row)]
				},
				{
					title: 'Disk',
					num: true,
					sort: row => row['disk-bytes'],
					cell: row => format.bytes(row['disk-bytes'])
				},
				{title: 'Merges', num: true, cell: row => format.count(row.merges)}
			]
		});
		const detail = el('div.stack');
		dom.fill(
			body,
			figures,
			parts.card(
				'Vector sets',
				table,
				el(
					'ul.legend',
					[
						['rows in memory', 2],
						['codes of segments', 1],
						['hot blocks', 4]
					].map(([name, c]) => el('li', el('span.swatch.k' + c), name))
				)
			),
			detail
		);
		let opened = null,
			redraw = null,
			says = null;
		const sets = setsAgain(scope);
		await scope.poll(async anew => {
			const now = await sets(anew);
			const sum = name => now.sets.reduce((total, one) => total + (one[name] || 0), 0);
			figures.set('rows', format.count(sum('size')), format.count(sum('memory-rows')) + ' of them in memory');
			const held = sum('memory-bytes') + sum('resident-bytes');
			figures.set(
				'memory',
				format.bytes(held),
				sum('memory-budget')
					? 'budgets for codes: ' + format.bytes(sum('memory-budget'))
					: 'sets have no budget of their own'
			);
			figures.set('disk', format.bytes(sum('disk-bytes')), format.bytes(sum('raw-bytes')) + ' as vectors');
			const q = now.quire;
			if (q && !q.error) {
				figures.set(
					'reads',
					q.searches ? format.rate(q.reads_per_search) : format.missing,
					'mean of ' + format.count(q.searches) + ' searches'
				);
				figures.set(
					'rounds',
					q.searches ? format.rate(q.rounds_per_search) : format.missing,
					'waits for the disk'
				);
				const works = ['sealing', 'merging', 'checkpointing'].filter(name => q[name]);
				figures.set(
					'work',
					works.join('+') || 'nothing',
					q.store_failures
						? format.count(q.store_failures) + ' failed since the start'
						: 'of seals, merges, checkpoints',
					q.store_failures ? 'warn' : ''
				);
				figures.set(
					'merges',
					format.count(q.merges),
					'seals: ' +
						format.count(q.seals) +
						'; ' +
						(q.writers_wait ? q.writers_wait + ' writers wait for one' : 'no writer waits'),
					q.writers_wait ? 'warn' : ''
				);
			}
			const key = now.sets.some(one => one.name === args[0]) ? args[0] : now.sets[0]?.name;
			state.key = key;
			table.set(now.sets);
			if (key === undefined) {
				redraw?.close();
				opened = redraw = says = null;
				dom.fill(detail);
			} else {
				const {size, segments, merges} = now.sets.find(one => one.name === key);
				const differs = JSON.stringify([key, size, segments, merges]);
				if (says !== differs) {
					const got = await scope.get('set', {set: key});
					if (opened !== key || !segments !== !redraw.segments) {
						redraw?.close();
						redraw = show(key, got);
					}
					redraw(got);
					redraw.segments = segments;
					opened = key;
					says = differs;
				}
			}
		});

		// Makes the place of a set's details; returns what draws them. A measurement stays when they are drawn again.
		function show(key, {info, sample}) {
			const own = scope.part();
			const recall = chart.draw(own, {
				label: 'Recall by effort',
				unit: chart.percent,
				height: 200,
				top: 1,
				zoom: true,
				x: {label: 'effort', show: v => String(Math.round(v))},
				series: [{label: 'recall of 10', c: 1, show: format.share}]
			});
			const reads = chart.draw(own, {
				label: 'Blocks read by effort',
				height: 130,
				x: {label: 'effort', show: v => String(Math.round(v))},
				series: [{label: 'blocks read a search', c: 3, show: format.rate}]
			});
			const curve = el('div.stack', {hidden: true}, recall, reads);
			const built = el('div.stack'),
				builtTold = parts.told(built),
				madeOf = el('div.stack'),
				cost = el('p');
			let drawn = null,
				builtSays = null;
			const made = parts.table({
				caption: 'Segments of ' + key,
				key: row => row.number,
				empty: 'No segment is on the disk.',
				columns: [
					{title: 'Segment', cell: row => [String(row.number), el('div.muted.small', row.index)]},
					{title: 'Rows', num: true, sort: row => row.rows, cell: row => format.count(row.rows)},
					{title: 'Dead', num: true, meaning: 'dead-rows', cell: row => format.count(row['dead-rows'])},
					{
						title: 'Codes',
						num: true,
						cell: row => (row['code-bits'] ? row['code-bits'] + ' bits' : 'not in memory')
					},
					{
						title: 'In memory',
						num: true,
						meaning: 'memory',
						cell: row => [
							format.bytes(row['resident-bytes']),
							row['memory-budget']
								? el('div.muted.small', 'budget ' + format.bytes(row['memory-budget']))
								: null
						]
					},
					{
						title: 'Disk',
						num: true,
						sort: row => row['disk-bytes'],
						cell: row => format.bytes(row['disk-bytes'])
					}
				]
			});
			const madeTold = parts.told(made);
			const said = el('div', {role: 'status'}),
				measured = el('p.muted', {role: 'status'});
			const work = (label, call) => {
				const button = el(
					'button',
					{
						type: 'button',
						onclick: async () => {
							button.disabled = true;
							try {
								await call();
							} catch (error) {
								if (!scope.signal.aborted) dom.fill(said, parts.note(error.message, 'bad'));
							}
							button.disabled = false;
						}
					},
					label
				);
				return button;
			};
			const queries = (Array.isArray(sample) ? sample : []).slice(0, 8),
				efforts = [10, 20, 40, 80, 160, 320];
			const measure = work('Measure now', async () => {
				const xs = [],
					ys = [],
					rs = [],
					truth = [];
				for (const element of queries)
					truth.push(
						new Set(
							(
								await scope.post('playground/set', {set: key, element, count: 10, truth: true})
							).results.map(one => one.element)
						)
					);
				for (const effort of efforts) {
					let right = 0,
						asked = 0,
						read = 0;
					for (const [i, element] of queries.entries()) {
						const found = await scope.post('playground/set', {set: key, element, count: 10, effort});
						right += found.results.filter(one => truth[i].has(one.element)).length;
						asked += truth[i].size;
						read += found.explain.reads;
					}
					xs.push(effort);
					ys.push(right / asked);
					rs.push(read / queries.length);
					dom.text(
						measured,
						'Effort ' +
							effort +
							': recall ' +
							format.share(ys.at(-1)) +
							', ' +
							format.rate(rs.at(-1)) +
							' blocks a search.'
					);
				}
				curve.hidden = false;
				recall.set([xs, ys]);
				reads.set([xs, rs]);
				recall.say(xs.map((x, i) => 'effort ' + x + ' ' + format.share(ys[i])).join(', '));
			});
			const check = work('Check it (VCHECK)', async () => {
				dom.fill(said, el('p.muted', 'Every byte of its segments is read ...'));
				const found = await scope.post('set/check', {set: key});
				dom.fill(
					said,
					found.findings
						? [
								parts.note(format.count(found.findings) + ' findings', 'bad'),
								el(
									'ul',
									found.first.map(one => el('li', one))
								)
							]
						: parts.note('Every byte is as it was written: no finding.', 'good')
				);
			});
			const value = (name, one) =>
				name.endsWith('bytes') || name === 'memory-budget'
					? format.bytes(one)
					: typeof one === 'number'
						? format.count(one)
						: String(one);
			dom.fill(
				detail,
				el(
					'div.cols',
					parts.cardWith(
						'Recall and effort of ' + key,
						parts.meant('how much is found, and what it costs', 'recall'),
						builtTold,
						info.segments
							? [el('h3', 'Measured on your data'), cost, el('div', measure), measured, curve]
							: parts.empty(
									'Nothing of it is on the disk.',
									'Its rows are in memory and are searched there. A segment is written when there are enough, or by hand:',
									'redis-cli VSEAL ' + key
								)
					),
					parts.card('What ' + key + ' is made of', madeOf, el('div', check), said)
				),
				info.segments ? parts.card('Segments of ' + key, madeTold) : null
			);
			const redraw = ({info, memory, segments}) => {
				builtTold.take(segments, list => {
					const curves = JSON.stringify(list.map(one => [one.number, one.rows, one.curve]));
					if (curves === builtSays) return;
					builtSays = curves;
					drawn?.close();
					drawn = scope.part();
					dom.fill(built, calibration(drawn, list));
				});
				madeTold.take(segments, list => made.set(list));
				dom.text(
					cost,
					queries.length +
						' elements of the set are searched by at ' +
						efforts.length +
						' efforts and compared with the truth, which reads the whole set ' +
						queries.length +
						' times (' +
						format.bytes(queries.length * info['disk-bytes']) +
						' or less).'
				);
				dom.fill(
					madeOf,
					parts.pairs([
						typeof memory === 'number' ? ['memory in all', format.bytes(memory), 'memory'] : null,
						...Object.entries(info)
							.filter(([, one]) => typeof one !== 'object')
							.map(([name, one]) => [name, value(name, one)])
					]),
					info.attributes?.length
						? parts.pairs([['attributes', info.attributes.map(one => [one].flat().join(' ')).join(', ')]])
						: null
				);
			};
			redraw.close = () => {
				own.close();
				drawn?.close();
			};
			return redraw;
		}
	}
});

// Memory by part; with a budget for segments, what is left of it stays empty.
function memoryParts(row) {
	const budget = row['memory-budget'],
		segments = row['resident-bytes'] + row['cache-bytes'],
		whole = row['memory-bytes'] + Math.max(budget, segments),
		part = name => row[name + '-bytes'] / whole;
	return [
		budget
			? el('div.muted.small', format.share(segments / budget) + ' of the budget of ' + format.bytes(budget))
			: null,
		parts.meter(
			[
				[part('memory'), 'k2'],
				[part('resident'), 'k1'],
				[part('cache'), 'k4']
			],
			'rows in memory ' +
				format.bytes(row['memory-bytes']) +
				', codes of segments ' +
				format.bytes(row['resident-bytes']) +
				', hot blocks ' +
				format.bytes(row['cache-bytes']) +
				(budget ? ', budget of segments ' + format.bytes(budget) : '')
		)
	];
}

const setsListed = said =>
	said.sets.filter(one => one.info && !one.info.error).map(one => ({...one.info, name: one.name}));

// All sets, page by page; those beyond a thousand are not listed.
async function allSets(scope) {
	const out = {sets: [], quire: null};
	let cursor = '0';
	do {
		const page = await scope.get('sets', {cursor});
		out.quire = page.quire;
		out.sets.push(...setsListed(page));
		cursor = page.cursor;
	} while (cursor !== '0' && out.sets.length < 1000);
	out.sets.sort((a, b) => (a.name < b.name ? -1 : 1));
	return out;
}

// The same again and again. Finding sets goes through all keys of the server, whatever they are: it is done at first, when
// one asks for it (r), when the number of sets has changed, and each minute; else those that are known are asked.
function setsAgain(scope) {
	const keep_ms = 60000;
	let names = [],
		found_ms = -Infinity,
		there;
	return async anew => {
		if (!anew && performance.now() - found_ms < keep_ms) {
			const said = await scope.post('sets', {names});
			if (said.quire?.collections === there) return {sets: setsListed(said), quire: said.quire};
		}
		const now = await allSets(scope);
		names = now.sets.map(one => one.name);
		there = now.quire?.collections;
		found_ms = performance.now();
		return now;
	};
}

// What building the segments has measured: recall of 10 and blocks read by effort, of the four with most rows.
function calibration(scope, segments) {
	const measured = [...segments]
		.sort((a, b) => b.rows - a.rows)
		.map(one => ({...one, points: one.curve.filter(([k, , , , kind]) => k === 10 && kind === 'exact')}))
		.filter(one => one.points.length > 1)
		.slice(0, 4);
	if (!segments.length) return null;
	if (!measured.length)
		return el('p.muted', 'Segments below 1,000 rows are not calibrated: their effort follows a fixed rule.');
	const efforts = [...new Set(measured.flatMap(one => one.points.map(p => p[1])))].sort((a, b) => a - b);
	const picture = (label, column, more) => {
		const node = chart.draw(scope, {
			x: {label: 'effort', show: v => String(Math.round(v))},
			series: measured.map((one, i) => ({
				label: 'segment ' + one.number + ', ' + format.count(one.rows) + ' rows',
				c: i + 1,
				show: more.show
			})),
			label,
			...more
		});
		const at = one => new Map(one.points.map(p => [p[1], p[column]]));
		node.set([
			efforts,
			...measured.map(one => {
				const known = at(one);
				return efforts.map(effort => known.get(effort) ?? null);
			})
		]);
		node.say(
			measured
				.map(one => one.points.map(p => 'effort ' + p[1] + ' ' + more.show(p[column])).join(', '))
				.join('; ')
		);
		return node;
	};
	return el(
		'div.stack',
		el('h3', 'Calibration: recall of 10 by effort'),
		picture('Calibrated recall by effort', 2, {
			unit: chart.percent,
			height: 200,
			top: 1,
			zoom: true,
			show: format.share
		}),
		el('h3', 'Blocks read by effort'),
		picture('Calibrated reads by effort', 3, {height: 130, show: format.rate})
	);
}
