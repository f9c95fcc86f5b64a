// view_category.js - view 3: how a category finds its threshold, what stands in its way, and its entries.
'use strict';

shell.view({
	id: 'category',
	key: '3',
	under: 'categories',
	title: 'Category',
	lead: 'The threshold and what it is made of; guards; entries.',
	async open(view) {
		const {scope, body, h1, pick, args} = view;
		const cache = await shell.cacheOf({...view, pick: el('div')}, 'category');
		if (!cache) return dom.fill(body, parts.card('Begin here', shell.noCache()));
		const list = (await scope.get('categories', {cache: cache})).names;
		const name = args[0] === cache && args[1] ? args[1] : list[0];
		if (!name)
			return dom.fill(
				body,
				parts.card(
					'Begin here',
					parts.empty(
						'The cache has no category yet.',
						'Make one:',
						'redis-cli SC.CAT.SET ' + cache + ' faq RISK 0.02'
					)
				)
			);
		dom.text(h1, 'Category ' + name);
		document.title = name + ' · Quire';
		pick.append(
			parts.field(
				'Category',
				parts.select(list.includes(name) ? list : [name, ...list], name, other =>
					shell.go('category', cache, other)
				)
			)
		);

		const figures = parts.figures([
			['threshold', 'Threshold', 'threshold'],
			['budget', 'Budget used', 'risk'],
			['rate', 'Hit rate', 'hit-rate'],
			['labels', 'Labels', 'labels'],
			['wrong', 'False hits', 'false-hits'],
			['entries', 'Entries', 'entries'],
			['get', 'Look-up p50', 'look-up']
		]);
		const ofStats = ['rate', 'labels', 'wrong', 'entries', 'get'];
		const what = {budget: null, other: null, now: 2}; // above 1: no threshold
		const differs = () => what.other !== null && what.other <= 1 && Math.abs(what.other - what.now) > 0.001;

		// the curve
		const curve = chart.draw(scope, {
			label: 'What each threshold would serve, and how often wrongly',
			height: 240,
			unit: chart.percent,
			top: 1,
			x: {label: 'threshold', show: s => s.toFixed(3)},
			series: [{label: 'served', c: 1, area: true, show: format.share}],
			marks: () =>
				[
					what.now <= 1 && {at: what.now, label: 'in force ' + what.now.toFixed(3), c: 'text'},
					differs() && {at: what.other, label: 'then ' + what.other.toFixed(3), c: 'c3', row: 1}
				].filter(Boolean)
		});
		const wrongs = chart.draw(scope, {
			label: 'Wrong answers at each threshold',
			height: 170,
			unit: chart.percent,
			x: {label: 'threshold', show: s => s.toFixed(3)},
			series: [
				{label: 'wrong, expected', c: 3, show: format.share},
				{label: 'bound', c: 6, show: format.share},
				{label: 'budget', c: 5, dash: [4, 3], show: format.share}
			],
			marks: () =>
				[
					what.now <= 1 && {at: what.now, label: '', c: 'text'},
					differs() && {at: what.other, label: '', c: 'c3'}
				].filter(Boolean)
		});
		const noCurve = el('div');
		const slider = el('input', {type: 'range', min: '-4', max: '-0.3', step: '0.01', 'aria-describedby': 'then'});
		const sliderShows = el('output', {id: 'then', role: 'status'});
		const sliderField = parts.field('Another budget of wrong answers', slider);
		const curveTold = parts.told(el('div.stack', noCurve, curve, wrongs, el('div.cols', sliderField, sliderShows)));
		const curveCard = parts.cardWith('Threshold curve', parts.meant('how it is learned', 'threshold'), curveTold);

		// the histogram
		const histogram = chart.draw(scope, {
			label: 'Look-ups by the similarity of their nearest entry',
			height: 200,
			x: {label: 'similarity', show: s => s.toFixed(3)},
			series: [
				['hits', 1],
				['misses', 5],
				['held back by a guard', 3]
			].map(([label, c]) => ({label, c, bars: true, stack: true})),
			marks: () => (what.now <= 1 ? [{at: what.now, label: 'threshold', c: 'text'}] : [])
		});
		const verdicts = chart.draw(scope, {
			label: 'Labels by similarity',
			height: 130,
			x: {label: 'similarity', show: s => s.toFixed(3)},
			series: [
				{label: 'right', c: 2, bars: true, stack: true},
				{label: 'wrong', c: 6, bars: true, stack: true}
			]
		});
		const noHistogram = el(
			'div',
			parts.empty(
				'No look-up has come near an entry yet.',
				'Ask twice in other words; the playground shows what happens.',
				null
			)
		);
		const histogramTold = parts.told(el('div', noHistogram, histogram, verdicts));
		const guards = el('div'),
			guardsTold = parts.told(guards),
			settings = el('div');

		// the entries
		const entries = parts.table({
			caption: 'Entries of ' + name,
			key: row => row.id,
			empty: parts.empty(
				'The category holds no entry.',
				'The gateway keeps each whole answer; by hand:',
				'redis-cli SC.PUT ' + cache + ' CAT ' + name + ' HASH h1 TEXT "a question" VEC ... VALUE "an answer"'
			),
			columns: [
				{
					title: 'Question',
					kind: 'text',
					cell: row =>
						el('button.plain.clip', {type: 'button', onclick: () => card(row)}, row.text || '(no text)')
				},
				{title: 'Hits', num: true, sort: row => row.hits, cell: row => format.count(row.hits)},
				{title: 'Age', num: true, sort: row => row.age_ms, cell: row => format.duration(row.age_ms)},
				{
					title: 'Lives',
					num: true,
					cell: row =>
						row.ttl_ms === -1 ? 'for ever' : row.ttl_ms < 0 ? 'stale' : format.duration(row.ttl_ms)
				},
				{title: 'Bytes', num: true, sort: row => row.bytes, cell: row => format.bytes(row.bytes)},
				{title: '', cell: row => (row.pinned ? parts.chip('pinned', 'info') : null)}
			]
		});

		// Those that answered most come with each poll; all of them when one asks, some at a time.
		const step = 20;
		const all = {shown: false, rows: [], next: '0', top: [], error: null};
		const entriesTold = parts.told(entries),
			entriesCount = el('p.muted.small', {role: 'status'});
		const more = el(
			'button',
			{type: 'button', hidden: true, onclick: () => readEntries(all.rows.length + step)},
			'More'
		);
		function showEntries() {
			entriesTold.take(all.shown ? (all.error ? {error: all.error} : all.rows) : all.top, part =>
				entries.set(part)
			);
			dom.text(
				entriesCount,
				all.shown
					? format.count(all.rows.length) +
							(all.next ? ' so far, in the order of their places' : ': these are all')
					: 'the first ' + step
			);
			more.hidden = !all.shown || !all.next;
		}
		// A page may be empty where entries of other categories lie between: at most 16 of them for one press.
		async function readEntries(wanted) {
			more.disabled = true;
			try {
				for (let calls = 0; calls < 16 && all.next && all.rows.length < wanted; calls++) {
					const cursor = all.next,
						page = await scope.get('entries', {cache, category: name, cursor, count: step});
					all.rows.push(...page.entries.map(row => ({...row, cursor})));
					all.next = page.cursor === '0' ? null : page.cursor;
				}
				all.error = null;
			} catch (error) {
				if (scope.signal.aborted) return;
				all.error = error;
			}
			more.disabled = false;
			showEntries();
		}
		async function readAgain() {
			const wanted = Math.max(step, all.rows.length);
			Object.assign(all, {rows: [], next: '0'});
			await readEntries(wanted);
		}
		const which = parts.choice(
			'Which entries',
			[
				['top', 'answered most'],
				['all', 'all']
			],
			'top',
			async value => {
				if (value === 'all') await readAgain();
				all.shown = value === 'all';
				showEntries();
			}
		);

		async function change(row, action, said) {
			try {
				await scope.post('entry', {cache, id: row.id, action});
				dom.fill(message, parts.note(said, 'good'));
				if (all.shown) await readAgain();
				await scope.tick();
			} catch (error) {
				shell.refused(rightOf[action], error);
				dom.fill(message, parts.note(error.message, 'bad'));
			}
		}
		const message = el('div');

		// Answers are long: they are read when one looks, and shown to a length that a dialog holds.
		async function readAnswer(row, place) {
			const most = 8192;
			try {
				const asked = {cache, category: name, values: 'yes'};
				const part = row.cursor
					? (await scope.get('entries', {...asked, cursor: row.cursor, count: step})).entries
					: (await scope.get('category', {...asked, top: step})).top;
				const no = parts.refusal(part),
					value = no ? null : part.find(one => one.id === row.id)?.value;
				if (!value) return dom.fill(place, el('p.muted', no || 'It cannot be read (any more).'));
				const cut = value.length > most ? value.slice(0, most) + ' … (cut here)' : value;
				dom.fill(place, el('pre.scroll', {tabIndex: 0, role: 'region', 'aria-label': 'The answer'}, cut));
			} catch (error) {
				if (!scope.signal.aborted) dom.fill(place, parts.note(error.message, 'bad'));
			}
		}

		function card(row) {
			// a button that closes the card and does something to the entry
			const act = (label, action, run, kind = 'button') =>
				el(
					kind,
					{
						type: 'button',
						disabled: !shell.may(rightOf[action]),
						onclick: () => {
							box.close();
							run();
						}
					},
					label
				);
			const answer = el('div', {'aria-live': 'polite'}, el('p.muted', 'It is read ...'));
			readAnswer(row, answer);
			const box = parts.dialog(
				'Entry ' + row.id,
				el('div.row', el('h2', 'Entry ' + row.id), row.pinned ? parts.chip('pinned', 'info') : null),
				el('h3', 'It was asked as'),
				el('pre', row.text || '(no text)'),
				el('h3', 'The answer'),
				answer,
				parts.pairs([
					['Hits', format.count(row.hits)],
					['Age', format.duration(row.age_ms)],
					['Lives for', row.ttl_ms === -1 ? 'ever' : format.duration(row.ttl_ms)],
					['Size', format.bytes(row.bytes)]
				]),
				el(
					'div.row',
					el(
						'div.row.start',
						act(row.pinned ? 'Unpin' : 'Pin', 'pin', () =>
							change(
								row,
								row.pinned ? 'unpin' : 'pin',
								row.pinned ? 'It may be evicted again.' : 'It is pinned: it is not evicted.'
							)
						),
						act('Answer is bad', 'bad', () =>
							change(row, 'bad', 'Counted as wrong: it is not given again for the same request.')
						),
						act(
							'Delete',
							'delete',
							() =>
								parts.confirm(
									'Delete entry ' + row.id + '? The next such question asks the model.',
									'Delete',
									() => change(row, 'delete', 'Entry ' + row.id + ' is deleted.')
								),
							'button.danger'
						)
					),
					el('button', {type: 'button', onclick: () => box.close()}, 'Close')
				)
			);
		}

		dom.fill(
			body,
			message,
			figures,
			curveCard,
			el(
				'div.cols',
				parts.cardWith('Similarity of look-ups', 'by outcome', histogramTold),
				parts.card('Guards and settings', guardsTold, settings)
			),
			el(
				'section.card',
				{'aria-label': 'Entries'},
				el('header', el('h2', 'Entries'), which),
				entriesTold,
				el('div.row.start', more, entriesCount)
			)
		);

		let asked = 0;
		// One value in what is said, asked and offered as a command.
		const sliderRisk = () => Number((10 ** Number(slider.value)).toPrecision(2));
		const inPercent = risk => Number((risk * 100).toPrecision(3)) + ' %';
		async function another() {
			const risk = sliderRisk(),
				mine = ++asked;
			slider.setAttribute('aria-valuetext', inPercent(risk));
			try {
				const then = (await scope.get('category', {cache, category: name, risk, top: 1})).risk;
				if (mine !== asked) return;
				if (then.error) throw new ApiError(409, then.error.message);
				what.other = then.threshold;
				const at = parts.pointAt(then.points, then.threshold);
				dom.fill(
					sliderShows,
					el(
						'p',
						'With a budget of ',
						el('b', inPercent(risk)),
						then.threshold > 1
							? ' nothing would be served by similarity: no threshold is safe with what is known.'
							: [
									' the threshold would be ',
									el('b', format.similarity(then.threshold)),
									at
										? [
												' and serve ',
												el('b', format.share(at[1])),
												' of the requests, ',
												el('b', format.share(at[2])),
												' wrongly (bound ',
												format.share(at[3]),
												').'
											]
										: '.'
								]
					),
					el(
						'p.muted.small',
						'Nothing is changed by the slider. To set it: ',
						el('code', 'SC.CAT.SET ' + cache + ' ' + name + ' RISK ' + risk)
					)
				);
				curve.redraw();
				wrongs.redraw();
			} catch (error) {
				if (!scope.signal.aborted) shell.failed(error);
			}
		}
		slider.addEventListener('input', another);

		let settingsSay = null;
		await scope.poll(async () => {
			const now = await scope.get('category', {cache, category: name, top: step});
			const {stats} = now,
				exact = now.settings.mode === 'exact' || now.settings.mode === 'off',
				risk = Number(now.settings.risk);
			if (what.budget === null) {
				asked++; // an answer that is under way is of before
				what.budget = risk > 0 ? risk : 0.02;
				what.other = null;
				slider.value = Math.log10(what.budget);
				slider.setAttribute('aria-valuetext', inPercent(what.budget));
				dom.fill(sliderShows, el('p.muted', 'Move it to see what another budget would do.'));
			}
			curveCard.hidden = exact;
			figures.take(now.tune, ['threshold', 'budget'], tune => drawTune(now, tune, exact, risk));
			curveTold.take(now.tune, tune => drawCurve(tune, risk));
			figures.take(stats, ofStats, drawStats);
			histogramTold.take(now.hist, drawHistogram);
			const says = JSON.stringify([now.settings, stats.guarded, stats.vetoed, shell.may('settings')]);
			if (says !== settingsSay) {
				settingsSay = says;
				guardsTold.take(stats, drawGuards);
				drawSettings(now.settings);
			}
			all.top = now.top;
			showEntries();
		});

		function drawTune(now, tune, exact, risk) {
			const at = parts.pointAt(tune.points, tune.threshold);
			what.now = tune.threshold;
			figures.set(
				'threshold',
				exact ? format.missing : format.similarity(tune.threshold),
				exact
					? 'mode ' + now.settings.mode
					: now.settings.sim
						? 'fixed by SIM'
						: 'learned for RISK ' + now.settings.risk
			);
			figures.set(
				'budget',
				risk > 0 && at && tune.threshold <= 1 ? format.share(at[3] / risk) : format.missing,
				risk > 0 ? 'of ' + format.share(risk) : 'no budget set'
			);
		}

		function drawStats(stats) {
			figures.set(
				'rate',
				stats.requests ? format.share(stats.hit_rate) : format.missing,
				'of ' + format.count(stats.requests) + ' requests'
			);
			figures.set('labels', format.count(stats.labels), 'since the start');
			figures.set(
				'wrong',
				format.count(stats.false_hits),
				stats.labels ? format.share(stats.false_hits / stats.labels) + ' of labels' : 'no labels'
			);
			figures.set('entries', format.count(stats.entries), format.bytes(stats.document_bytes));
			figures.set(
				'get',
				stats.requests ? format.micros(stats.get_p50_us) : format.missing,
				'p99 ' + (stats.requests ? format.micros(stats.get_p99_us) : format.missing)
			);
		}

		function drawCurve(tune, risk) {
			const points = [...tune.points].sort((a, b) => a[0] - b[0]);
			const has = points.length > 1;
			curve.hidden = wrongs.hidden = !has;
			dom.fill(
				noCurve,
				has
					? null
					: parts.empty(
							'There is no curve yet.',
							'It is drawn from requests and labels. A judge gives labels by itself; you can give them in Labels:',
							'quire-gateway ... --set judge=model --set judge-share=0.05'
						)
			);
			sliderField.hidden = sliderShows.hidden = !has;
			if (has) {
				const xs = points.map(p => p[0]);
				curve.set([xs, points.map(p => p[1])]);
				wrongs.set([
					xs,
					points.map(p => p[2]),
					points.map(p => p[3]),
					points.map(() => (risk > 0 ? risk : null))
				]);
				curve.say('threshold in force ' + format.similarity(tune.threshold));
			}
		}

		function drawGuards(stats) {
			const by = Object.entries(stats.guards || {}).sort((a, b) => b[1] - a[1]),
				silent = by.filter(one => !one[1]).map(one => one[0]);
			dom.fill(
				guards,
				pictures.bars('What guards did', [
					[parts.meant('held back by a guard', 'guards'), stats.guarded, format.count(stats.guarded), 3],
					...by.filter(one => one[1]).map(([guard, n]) => ['by ' + guard, n, format.count(n), 4]),
					["below the entry's own threshold", stats.vetoed, format.count(stats.vetoed), 5]
				]),
				silent.length ? el('p.muted.small', 'Nothing was held back by: ' + silent.join(', ') + '.') : null
			);
		}

		function drawSettings(now) {
			dom.fill(
				settings,
				el(
					'div.row',
					el('h3', 'Settings'),
					el(
						'button.slim',
						{
							type: 'button',
							disabled: !shell.may('settings'),
							onclick: () =>
								editCategory(scope, cache, name, now, async said => {
									dom.fill(message, parts.note(said, 'good'));
									what.budget = null;
									await scope.tick();
								})
						},
						'Change'
					)
				),
				parts.pairs(
					Object.entries(now).map(([key, value]) => [
						key,
						[el('code', String(value)), ' ', el('span.muted', inWords(key, value))]
					])
				)
			);
		}

		function drawHistogram(bins) {
			const has = bins.length > 0;
			histogram.hidden = verdicts.hidden = !has;
			noHistogram.hidden = has;
			if (!has) return;
			// bins of 0.0025 are too fine to see: four make one
			const width = 0.01,
				first = Math.floor(bins[0][0] / width + 1e-6),
				last = Math.floor(bins[bins.length - 1][0] / width + 1e-6);
			const columns = [[], [], [], [], [], []];
			for (let i = Math.min(first, last - 12); i <= last; i++) {
				columns[0].push(i * width + width / 2);
				for (let k = 1; k < 6; k++) columns[k].push(0);
			}
			for (const bin of bins) {
				const at = Math.floor(bin[0] / width + 1e-6) - Math.min(first, last - 12);
				for (let k = 1; k < 6; k++) columns[k][at] += bin[k];
			}
			histogram.set([columns[0], columns[1], columns[2], columns[3]]);
			verdicts.set([columns[0], columns[4], columns[5]]);
			verdicts.hidden = ![...columns[4], ...columns[5]].some(Boolean);
		}
	}
});

// The right of what a card offers.
const rightOf = {pin: 'pin', unpin: 'pin', bad: 'feedback', delete: 'delete'};

// The value of a setting with its unit.
function inWords(key, value) {
	const none = {ttlmax: 'no limit', quota: 'as the cache', entries: 'as the cache', audit: 'by the rule'}[key];
	if (none && Number(value) === 0) return none;
	if (['ttl', 'ttlmax', 'stale', 'staleerror', 'lease'].includes(key))
		return Number(value) ? 'ms: ' + format.duration(Number(value)) : 'ms';
	if (['risk', 'audit'].includes(key)) return format.share(Number(value));
	return {jitter: '%', minshare: '%', quota: format.bytes(Number(value))}[key] || '';
}

// What may be changed in the page: its field, and what is said of it. Times are ms, shares of 1.
const settingFields = [
	['ttl', 'Time to live, ms', 'of an entry, from when it was kept'],
	['stale', 'Stale for, ms', 'still served after its end, while one asks anew'],
	['audit', 'Audited share', '0 to 1; 0: chosen by the rule'],
	['quota', 'Quota', 'bytes, or as 10mb; 0: as many as the cache'],
	['entries', 'Entries', '0: as many as the cache'],
	['priority', 'Priority', '0 to 100; the lowest gives up entries first']
];

// A form of a category's settings. First it says what would follow, then it sets what was changed and nothing else.
function editCategory(scope, cache, name, settings, done) {
	const bySim = settings.sim !== undefined;
	const mode = parts.select(['off', 'exact', 'semantic', 'both'], settings.mode, () => {});
	const rule = parts.select(
		[
			['risk', 'learned for a budget (RISK)'],
			['sim', 'fixed (SIM)']
		],
		bySim ? 'sim' : 'risk',
		kind => (value.value = settings[kind] ?? (kind === 'risk' ? '0.02' : '0.9'))
	);
	const value = el('input', {
		type: 'text',
		name: 'value',
		required: true,
		value: bySim ? settings.sim : settings.risk
	});
	const others = settingFields.map(([id]) =>
		el('input', {type: 'text', name: id, required: true, value: settings[id]})
	);
	const said = el('div', {role: 'status'}),
		button = el('button.main', {type: 'submit'}, 'What would follow?');
	let agreed = null;

	function changes() {
		const out = {};
		if (mode.value !== settings.mode) out.MODE = mode.value;
		if (settings[rule.value] === undefined || value.value.trim() !== settings[rule.value])
			out[rule.value.toUpperCase()] = value.value.trim();
		settingFields.forEach(([id], i) => {
			if (others[i].value.trim() !== settings[id]) out[id.toUpperCase()] = others[i].value.trim();
		});
		return out;
	}

	// The server's own answer for another budget; for the rest, what stands beside the field.
	async function follows(wanted) {
		const out = Object.entries(wanted).map(([key, to]) =>
			el('li', el('code', key), ' ' + (settings[key.toLowerCase()] ?? 'not in force') + ' → ', el('b', to))
		);
		if (wanted.RISK) {
			const then = (await scope.get('category', {cache, category: name, risk: wanted.RISK, top: 1})).risk;
			if (then.error) throw new ApiError(409, then.error.message);
			const at = parts.pointAt(then.points, then.threshold);
			out.push(
				el(
					'li',
					then.threshold > 1
						? 'Nothing would be served by similarity: no threshold is safe with what is known.'
						: 'The threshold would be ' +
								format.similarity(then.threshold) +
								(at
									? ' and serve ' +
										format.share(at[1]) +
										' of the requests, ' +
										format.share(at[2]) +
										' wrongly.'
									: '.')
				)
			);
		}
		return out;
	}

	const form = el(
		'form.grid',
		{
			oninput: () => {
				agreed = null;
				dom.text(button, 'What would follow?');
				dom.fill(said);
			},
			onsubmit: async event => {
				event.preventDefault();
				const wanted = changes(),
					says = JSON.stringify(wanted);
				try {
					if (says === '{}') return dom.fill(said, parts.note('Nothing is different.'));
					if (agreed !== says) {
						const list = await follows(wanted);
						agreed = says;
						dom.fill(said, el('ul', list));
						return dom.text(button, 'Set it');
					}
					await scope.post('category', {cache, category: name, settings: wanted});
					box.close();
					await done('Set: ' + Object.entries(wanted).flat().join(' ') + '.');
				} catch (error) {
					shell.refused('settings', error);
					if (!scope.signal.aborted) dom.fill(said, parts.note(error.message, 'bad'));
				}
			}
		},
		parts.field('Mode', mode),
		parts.field('Threshold', rule),
		parts.field('RISK or SIM', value, '0 to 1'),
		settingFields.map(([, label, hint], i) => parts.field(label, others[i], hint)),
		el('div.wide', said),
		el('div.row.wide', button, el('button', {type: 'button', onclick: () => box.close()}, 'Leave it'))
	);
	const box = parts.dialog(
		'Settings of ' + name,
		el('h2', 'Settings of ' + name),
		form,
		el(
			'p.muted',
			'Others, such as guards, by SC.CAT.SET: ',
			el('a', {href: docs.link('docs/cache-settings.md')}, 'docs/cache-settings.md')
		)
	);
}
