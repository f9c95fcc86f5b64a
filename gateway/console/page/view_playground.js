// view_playground.js - view 5: ask the cache or a set, and see what it does: nothing is kept or leased.
'use strict';

shell.view({
	id: 'playground',
	key: '5',
	title: 'Playground',
	lead: 'Ask, and see what the answer is made of. Nothing is kept, and no lease is taken; a question to a cache counts as one of its requests.',
	async open(view) {
		const {scope, body, pick, state} = view;
		const [known, vectors] = await Promise.all([scope.get('caches'), allSets(scope)]);
		const caches = known.caches.map(one => one.name),
			sets = vectors.sets.map(one => one.name);
		state.kind ||= caches.length || !sets.length ? 'cache' : 'set';
		const form = el('div'),
			result = el('div.stack', {'aria-live': 'polite'});
		pick.append(
			parts.choice(
				'What to ask',
				[
					['cache', 'A cache'],
					['set', 'A vector set']
				],
				state.kind,
				kind => {
					state.kind = kind;
					dom.fill(result);
					draw();
				}
			)
		);
		dom.fill(body, form, result);

		async function draw() {
			try {
				await (state.kind === 'cache' ? cacheForm() : setForm());
			} catch (error) {
				if (!scope.signal.aborted) shell.failed(error);
			}
		}

		async function run(button, work) {
			button.disabled = true;
			try {
				dom.fill(result, await work());
			} catch (error) {
				if (error.status === 401) shell.failed(error);
				else if (!scope.signal.aborted) dom.fill(result, parts.note(error.message, 'bad'));
			}
			button.disabled = false;
		}

		async function cacheForm() {
			if (!caches.length) return dom.fill(form, parts.card('Begin here', shell.noCache()));
			state.cache = caches.includes(state.cache) ? state.cache : caches[0];
			const text = el('textarea', {
				name: 'text',
				value: state.text || '',
				required: true,
				placeholder: 'How do I reset my password?'
			});
			const pairs = el('input', {
				type: 'text',
				name: 'scope',
				value: state.scope || '',
				placeholder: 'tenant=acme user=7',
				spellcheck: false
			});
			const sim = el('input', {
				type: 'text',
				inputMode: 'decimal',
				name: 'sim',
				value: state.sim || '',
				placeholder: "the category's"
			});
			const categories = el('div');
			const button = el('button.main', {type: 'submit'}, 'Ask');
			let category = state.category;
			async function readCategories() {
				const known = await scope.get('categories', {cache: state.cache});
				const found = known.categories.sort((a, b) => (b.stats.entries || 0) - (a.stats.entries || 0));
				const list = [...new Set([...found.map(one => one.name), ...known.names])].filter(one => one !== '*');
				if (!list.includes(category)) category = list[0]; // that with most entries
				dom.fill(
					categories,
					parts.field(
						'Category',
						parts.select(list, category, value => {
							category = value;
						})
					)
				);
			}
			dom.fill(
				form,
				parts.card(
					'Question',
					el(
						'form.grid',
						{
							onsubmit: event => {
								event.preventDefault();
								Object.assign(state, {text: text.value, scope: pairs.value, sim: sim.value, category});
								run(button, async () => {
									if (sim.value && !(Number(sim.value) >= 0 && Number(sim.value) <= 1))
										throw new Error(
											'A similarity is a number from 0 to 1; "' + sim.value + '" is none.'
										);
									return answer(
										await scope.post('playground/cache', {
											cache: state.cache,
											category,
											text: text.value,
											scope: scopeOf(pairs.value),
											query: true,
											...(sim.value ? {similarity: Number(sim.value)} : {})
										})
									);
								});
							}
						},
						el('div.wide', parts.field('Question', text)),
						caches.length > 1
							? parts.field(
									'Cache',
									parts.select(caches, state.cache, value => {
										state.cache = value;
										readCategories().catch(shell.failed);
									})
								)
							: null,
						categories,
						parts.field('Scope', pairs),
						parts.field('At least this similar', sim),
						button
					)
				)
			);
			text.addEventListener('keydown', event => {
				if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) text.form.requestSubmit();
			});
			await readCategories();
		}

		function answer(said) {
			const reply = said.reply,
				served = ['hit', 'exact', 'stale'].includes(reply.status);
			const list = reply.candidates || [];
			return [
				parts.card(
					'What the cache says',
					el('div.row.start', parts.chip(reply.status, outcomeTone(reply.status)), el('span', reply.reason)),
					parts.pairs([
						['Similarity', format.similarity(reply.similarity), 'similarity'],
						[
							'Threshold',
							reply.threshold > 1
								? 'none: nothing is served by similarity at present'
								: format.similarity(reply.threshold),
							'threshold'
						],
						reply.guard ? [served ? 'A guard held back another' : 'Guard', reply.guard, 'guards'] : null,
						reply.id ? ['Entry', reply.id] : null,
						format.known(reply.age_ms) ? ['Age', format.duration(reply.age_ms)] : null,
						reply.model ? ['Model', reply.model] : null,
						reply.tokens_out
							? [
									'Tokens',
									format.count(reply.tokens_in) + ' in, ' + format.count(reply.tokens_out) + ' out'
								]
							: null
					]),
					served && reply.text ? [el('h3', 'It was asked as'), el('pre', reply.text)] : null,
					served && reply.value ? [el('h3', 'The answer'), el('pre', reply.value)] : null,
					said.why ? parts.note('No vector: ' + said.why, 'warn') : null,
					onMap(['cache', state.cache, state.category], state.text, foundInCache(said)),
					el('h3', 'What would have to change'),
					el(
						'ul',
						{style: 'margin: 0; padding-left: 20px'},
						changes(said, reply, list).map(one => el('li', one))
					)
				),
				parts.cardWith(
					'Candidates',
					'nearest first',
					list.length
						? [pictures.candidates(list, reply.threshold), candidateTable(list)]
						: parts.empty(
								'There was nothing to compare with.',
								said.vector !== 'none'
									? 'The group (category, scope, context) holds nothing near.'
									: 'The question had no vector: only the exact request could answer.'
							)
				),
				parts.card(
					'Where the time went',
					pictures.times('Time of the look-up', [
						['vector of the text', said.encode_us, 3],
						['the cache, there and back', said.us, 1]
					])
				)
			];
		}

		function changes(said, reply, list) {
			const out = [],
				best = list[0];
			if (reply.status === 'exact')
				out.push(
					'Nothing: the very request was answered before. Another wording would be compared by similarity.'
				);
			else if (reply.status === 'hit')
				out.push(
					'Nothing: the nearest entry is ' +
						format.similarity(reply.similarity - reply.threshold) +
						' above the threshold. Below it the model would be asked.'
				);
			else if (reply.status === 'stale')
				out.push(
					'The entry has ended and is still served while one caller renews it. A longer TTL would make it a hit.'
				);
			else if (reply.status === 'bypass') out.push(reply.reason + ': nothing is looked up until that ends.');
			else {
				if (said.vector === 'none')
					out.push(
						'A vector of the question: the gateway has no encoder (embed-url or embed-file), so only the same request is found.'
					);
				if (reply.guard)
					out.push(
						'The guard: ' +
							reply.guard +
							'. Where both mean the same, leave it out of GUARD in this category.'
					);
				if (reply.threshold > 1)
					out.push(
						'The threshold: with RISK nothing is served by similarity before there are labels. Judge pairs in Labels, set a judge, or set SIM.'
					);
				else if (best && best.similarity < reply.threshold)
					out.push(
						format.similarity(reply.threshold - best.similarity) +
							' more similarity (the nearest has ' +
							format.similarity(best.similarity) +
							'), or a threshold of ' +
							format.similarity(best.similarity) +
							' (SIM, or a larger RISK).'
					);
				for (const one of list.slice(0, 3))
					if (one.why && one.why !== reply.guard) out.push('Entry ' + one.id + ': ' + one.why);
				if (!list.length && said.vector !== 'none')
					out.push(
						'An entry in this category and scope: look at Tenants for the scopes that have some, and give all pairs of one.'
					);
				if (!list.length && state.cache === shell.me().cache)
					out.push(
						'What the gateway itself has kept belongs to a context, too (model, system prompt, settings): ask the gateway with X-Quire-Explain: yes to see those candidates.'
					);
			}
			return out.length ? out : [reply.reason];
		}

		const candidateTable = list => {
			const table = parts.table({
				caption: 'Candidates',
				key: row => row.id,
				columns: [
					{title: 'Entry', cell: row => el('code', row.id)},
					{title: 'Similarity', num: true, cell: row => format.similarity(row.similarity)},
					{title: 'Verdict', kind: 'keep', cell: row => parts.chip(row.verdict, pictures.tone(row.verdict))},
					{title: 'Why', kind: 'text', cell: row => row.why || ''}
				]
			});
			table.set(list);
			return table;
		};

		function setForm() {
			if (!sets.length) return dom.fill(form, parts.card('Begin here', noSet()));
			state.set = sets.includes(state.set) ? state.set : sets[0];
			const query = el('input', {
				type: 'text',
				name: 'query',
				required: true,
				value: state.query || '',
				spellcheck: false
			});
			state.by ||= 'element';
			const queryField = parts.field('', query);
			const byWhat = by => {
				state.by = by;
				dom.text(queryField.firstChild, by === 'text' ? 'Text' : 'Element or vector');
				query.placeholder =
					by === 'text'
						? "words: the gateway's encoder makes the vector"
						: 'an element, or numbers: 0.1 0.3 -0.2';
			};
			byWhat(state.by);
			const tenants = el('input', {
				type: 'text',
				name: 'tenants',
				value: state.tenants || '',
				placeholder: 'acme bolt',
				spellcheck: false
			});
			const amount = el('input', {type: 'number', name: 'count', min: 1, max: 100, value: state.count || 10});
			const recall = el('input', {
				type: 'text',
				inputMode: 'decimal',
				name: 'recall',
				value: state.recall || '',
				placeholder: '0.95'
			});
			const filter = el('input', {
				type: 'text',
				name: 'filter',
				value: state.filter || '',
				placeholder: '.price < 10',
				spellcheck: false
			});
			const truth = el('input', {type: 'checkbox', name: 'truth', checked: !!state.truth});
			const button = el('button.main', {type: 'submit'}, 'Search');
			dom.fill(
				form,
				parts.card(
					'Search',
					el(
						'form.grid',
						{
							onsubmit: event => {
								event.preventDefault();
								Object.assign(state, {
									query: query.value,
									count: amount.value,
									recall: recall.value,
									filter: filter.value,
									tenants: tenants.value,
									truth: truth.checked
								});
								run(button, async () => {
									const whose = tenants.value.split(/\s+/).filter(Boolean);
									return found(
										await scope.post('playground/set', {
											set: state.set,
											attributes: true,
											query: true,
											...queryOf(state.by, query.value),
											count: Number(amount.value),
											...(recall.value ? {recall: Number(recall.value)} : {}),
											...(filter.value ? {filter: filter.value} : {}),
											...(whose.length ? {tenants: whose} : {}),
											...(truth.checked ? {truth: true} : {})
										})
									);
								});
							}
						},
						el(
							'div.wide.stack',
							parts.choice(
								'Searched by',
								[
									['element', 'Element or vector'],
									['text', 'Text']
								],
								state.by,
								byWhat
							),
							queryField
						),
						parts.field(
							'Set',
							parts.select(sets, state.set, value => {
								state.set = value;
							})
						),
						parts.field('How many', amount),
						parts.field('Recall', recall),
						parts.field('Filter', filter),
						parts.field('Tenants', tenants),
						el('label.tick', truth, 'compare with everything (TRUTH)'),
						button
					)
				)
			);
		}

		function found(said) {
			const get = name => said.explain[name];
			const us = get('latency-us'),
				step = Math.min(get('step-us') || 0, us || 0);
			const table = parts.table({
				caption: 'Nearest elements',
				key: row => row.element,
				empty: 'Nothing is there that passes the filter.',
				columns: [
					{title: 'Element', kind: 'text', cell: row => row.element},
					{title: 'Similarity', num: true, meaning: 'similarity', cell: row => format.similarity(row.score)},
					{
						title: 'Attributes',
						kind: 'text',
						cell: row =>
							row.attributes
								? el(
										'code',
										typeof row.attributes === 'string'
											? row.attributes
											: JSON.stringify(row.attributes)
									)
								: ''
					}
				]
			});
			table.set(said.results);
			return [
				parts.cardWith(
					'Nearest',
					format.count(said.results.length) + ' of ' + format.count(get('matches')) + ' that match',
					table,
					onMap(['set', state.set], state.query, foundInSet(said))
				),
				parts.card(
					'What the search did',
					parts.pairs([
						['Plan', el('b', get('plan'))],
						[
							'Result',
							get('result') +
								({
									complete: ': ended by its own rule',
									exact: ': these are the true nearest',
									partial: ': cut short'
								}[get('result')] || '')
						],
						['Effort', format.count(get('effort')), 'effort'],
						['Segments', format.count(get('segments')), 'segments'],
						[
							'Blocks read',
							format.count(get('reads')) +
								' (' +
								format.bytes(get('bytes')) +
								')' +
								(get('reads-expected') ? ', ' + format.count(get('reads-expected')) + ' expected' : ''),
							'reads'
						],
						['Rounds', format.count(get('rounds')), 'rounds'],
						get('switched')
							? ['Plan changed', 'during the search: fewer matches were near than expected']
							: null,
						get('estimated') ? ['Named without a read', format.count(get('estimated'))] : null
					]),
					get('reads')
						? pictures.rounds(get('reads'), get('rounds'))
						: el('p.muted', 'No block was read: everything that was looked at is in memory.'),
					el('h3', 'What was compared'),
					pictures.bars('Rows compared', [
						['by codes in memory', get('codes-scored'), format.count(get('codes-scored')), 5],
						['in memory, in full', get('memory-rows-scored'), format.count(get('memory-rows-scored')), 2],
						[
							'read from the disk, in full',
							get('rows-scored') - get('memory-rows-scored'),
							format.count(get('rows-scored') - get('memory-rows-scored')),
							1
						]
					])
				),
				parts.card(
					'Where the time went',
					pictures.times('Time of the search', [
						['computing (steps of the search)', step, 1],
						['waiting for its turn and the disk', us - step, 5]
					])
				)
			];
		}
		draw();
	}
});

// 'tenant=acme user=7' as an object.
function scopeOf(text) {
	const out = {};
	for (const word of text.trim().split(/\s+/).filter(Boolean)) {
		const at = word.indexOf('=');
		if (at < 1)
			throw new Error('The scope takes pairs key=value with blanks between them; "' + word + '" is none.');
		out[word.slice(0, at)] = word.slice(at + 1);
	}
	return out;
}

// What a set is asked by: words, or the numbers of a vector, or an element.
function queryOf(by, text) {
	const words = text.trim().split(/[\s,]+/),
		numbers = words.map(Number);
	if (by === 'text') return {text};
	return words.length > 1 && numbers.every(Number.isFinite) ? {vector: numbers} : {element: text.trim()};
}

// What an answer has for the map: the vector that was asked by, and who was found.
const foundInSet = said => ({
	query: said.query,
	why: said.why,
	found: said.results.map(one => [one.element, one.score])
});
const foundInCache = ({query, why, reply}) => ({
	query,
	why,
	found: (reply.candidates || []).map(one => [one.id, one.similarity])
});

const onMap = (where, label, found) =>
	found.query &&
	el(
		'div',
		el(
			'a.button',
			{
				href: shell.link('map', ...where),
				onclick: () => shell.keep('map', {asked: {where: where.join('/'), label, ...found}})
			},
			'Show it on the map'
		)
	);

const noSet = () =>
	parts.empty(
		'There is no vector set yet.',
		'Make one with its first element:',
		'redis-cli VADD colours VALUES 3 1 0.5 0 orange\nredis-cli VADD colours VALUES 3 0 0.4 1 blue'
	);
