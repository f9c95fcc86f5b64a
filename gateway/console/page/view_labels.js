// view_labels.js - view 4: pairs to judge, one at a time, by key. What the cache itself would have said is hidden until one
// has chosen. The API takes pairs off the cache's list: what is here and not judged stays here, also when the view is left.
'use strict';

shell.view({
	id: 'labels',
	key: '4',
	title: 'Labels',
	lead: 'Does the cached answer fit the question? Each verdict sharpens the threshold.',
	async open(view) {
		const {scope, body, state} = view;
		const cache = await shell.cacheOf(view, 'labels');
		if (!cache) return dom.fill(body, parts.card('Begin here', shell.noCache()));
		state.done ||= {good: 0, bad: 0, agreed: 0, compared: 0};
		const figures = parts.figures([
			['waiting', 'Pairs here', 'labels'],
			['good', 'You said good'],
			['bad', 'You said bad'],
			['agree', 'Cache agreed', 'threshold']
		]);
		const stage = el('div'),
			after = el('div', {'aria-live': 'polite'});
		const queue = ((state.queues ||= {})[cache] ||= []);
		let busy = false;
		dom.fill(body, figures, stage, after);

		const empty = () =>
			!shell.may('labels')
				? parts.card(
						'Nothing to judge',
						parts.empty(
							'You may look, but not judge.',
							'Pairs are taken off a list and their labels change the threshold: start the gateway with the setting ui=yes, and sign in as a user with that right.',
							'quire-gateway ... --set ui=yes'
						)
					)
				: parts.card(
						'Nothing to judge',
						parts.empty(
							'No pair waits for a label.',
							'Pairs come from audits of would-be hits and from misses that are sampled, in categories with RISK, and the last 4,096 are kept. More come with a larger share of audits:',
							'redis-cli SC.CAT.SET ' + cache + ' CATEGORY AUDIT 0.05'
						),
						el('div', el('button', {type: 'button', onclick: () => more()}, 'Look again'))
					);

		function count() {
			const done = state.done;
			figures.set('waiting', format.count(queue.length), "taken from the cache's list");
			figures.set('good', format.count(done.good), 'since this page was opened');
			figures.set('bad', format.count(done.bad), '');
			const n = done.compared;
			figures.set(
				'agree',
				n ? format.share(done.agreed / n) : format.missing,
				n ? 'its threshold says the same' : 'nothing judged yet'
			);
		}

		// By the curve of the category: would it have been served, and how often was it wrong at this similarity?
		async function guess(pair) {
			if (pair.guess) return;
			const {tune, hist} = await scope.get('category', {cache, category: pair.category, top: 1});
			const no = parts.refusal(tune) || parts.refusal(hist);
			if (no) return (pair.guess = {no});
			const near = hist.filter(([similarity]) => Math.abs(similarity - pair.similarity) <= 0.02);
			const right = near.reduce((sum, bin) => sum + bin[4], 0),
				wrong = near.reduce((sum, bin) => sum + bin[5], 0);
			pair.guess = {good: pair.similarity >= tune.threshold, right, wrong};
		}

		const guessSays = pair =>
			pair.guess.no ||
			'The cache would have said ' +
				(pair.guess.good ? 'good: it is above the threshold' : 'bad: it is below the threshold') +
				' (' +
				(pair.guess.right + pair.guess.wrong
					? pair.guess.wrong +
						' of ' +
						(pair.guess.right + pair.guess.wrong) +
						' labels near this similarity were wrong).'
					: 'no label near this similarity yet).');

		function show() {
			count();
			const pair = queue[0];
			if (!pair) return dom.fill(stage, empty());
			const hidden = el(
				'p.muted',
				{id: 'guess', role: 'status'},
				'What the cache would have said is hidden until you choose (J shows it).'
			);
			dom.fill(
				stage,
				el(
					'section.card',
					{'aria-label': 'Pair ' + pair.audit},
					el(
						'div.row',
						el(
							'div.row.start',
							parts.chip(pair.category, 'info'),
							el(
								'span',
								parts.meant('similarity', 'similarity'),
								' ',
								el('b', format.similarity(pair.similarity))
							),
							el('span.muted', 'pair ' + pair.audit)
						),
						el('span.muted.small', queue.length + ' here')
					),
					el(
						'div.cols',
						el(
							'section',
							{'aria-label': 'Asked'},
							el('h3', 'Asked now'),
							el('pre', pair.text || '(no text)')
						),
						el(
							'section',
							{'aria-label': 'Kept'},
							el('h3', 'Asked then'),
							el('pre', pair.entry_text || '(no text)')
						)
					),
					el(
						'section',
						{'aria-label': 'Answer'},
						el('h3', 'The answer that the cache would give'),
						el('pre', pair.entry_value || '(no value)')
					),
					hidden,
					el(
						'div.row',
						el(
							'div.row.start',
							el('button.main', {type: 'button', onclick: () => judge(true)}, 'Good ', el('kbd', 'G')),
							el('button', {type: 'button', onclick: () => judge(false)}, 'Bad ', el('kbd', 'B')),
							el('button', {type: 'button', onclick: later}, 'Later ', el('kbd', 'S'))
						),
						el('button.slim', {type: 'button', onclick: reveal}, 'Show its guess ', el('kbd', 'J'))
					)
				)
			);
		}

		async function reveal() {
			const pair = queue[0];
			try {
				await guess(pair);
				dom.text(document.getElementById('guess'), guessSays(pair));
			} catch (error) {
				if (!scope.signal.aborted) shell.failed(error);
			}
		}

		function later() {
			if (queue.length) queue.push(queue.shift());
			show();
		}

		async function judge(good) {
			const pair = queue[0];
			if (!pair || busy) return;
			busy = true;
			try {
				await guess(pair);
				await scope.post('audit/put', {cache, audit: pair.audit, verdict: good ? 'good' : 'bad'});
				state.done[good ? 'good' : 'bad']++;
				if (!pair.guess.no) state.done.compared++;
				if (pair.guess.good === good) state.done.agreed++;
				queue.shift();
				dom.fill(
					after,
					parts.note('Pair ' + pair.audit + ' is ' + (good ? 'good' : 'bad') + '. ' + guessSays(pair), 'good')
				);
				if (!queue.length) await more();
				else show();
			} catch (error) {
				shell.refused('labels', error);
				if (!scope.signal.aborted) dom.fill(after, parts.note(error.message, 'bad'));
			}
			busy = false;
		}

		async function more() {
			try {
				if (!queue.length && shell.may('labels'))
					queue.push(...(await scope.post('audit/pop', {cache, count: 5})).pairs);
			} catch (error) {
				shell.refused('labels', error);
				if (error.status !== 403) throw error;
				dom.fill(after, parts.note(error.message, 'warn'));
			}
			show();
		}

		scope.on(window, 'keydown', event => {
			if (
				event.ctrlKey ||
				event.metaKey ||
				event.altKey ||
				event.target.closest('input, textarea, select, dialog')
			)
				return;
			const call = {g: () => judge(true), b: () => judge(false), s: later, j: reveal}[event.key.toLowerCase()];
			if (!call || !queue.length) return;
			event.preventDefault();
			call();
		});
		await more();
	}
});
