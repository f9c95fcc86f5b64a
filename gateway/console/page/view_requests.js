// view_requests.js - view 6: the last requests of the gateway, what became of each and why.
'use strict';

shell.view({
	id: 'requests',
	key: '6',
	title: 'Requests',
	lead: 'The last 1,000 that went through this gateway, newest first.',
	async open({scope, body, state}) {
		state.status ||= '';
		state.words ||= '';
		const shown_max = 200;
		let all = [],
			last = null,
			began = null;
		const words = el('input', {
			type: 'search',
			value: state.words,
			placeholder: 'model, tenant, category, reason ...',
			oninput: () => {
				state.words = words.value;
				draw();
			}
		});
		const counts = el('p.muted.small', {role: 'status'});
		const table = parts.table({
			caption: 'Requests',
			key: row => row.number,
			empty: 'No request matches.',
			columns: [
				{title: 'Time', kind: 'keep', cell: row => format.clock(row.time_ms)},
				{
					title: 'Cache',
					kind: 'keep',
					meaning: 'status',
					cell: row => parts.chip(row.cache || row.route, outcomeTone(row.cache))
				},
				{
					title: 'Why',
					kind: 'text',
					cell: row => [row.reason, row.question ? el('div.muted.small.clip', row.question) : null]
				},
				{
					title: 'Model',
					kind: 'text',
					cell: row => [row.model || format.missing, el('div.muted.small', row.route)]
				},
				{title: 'Category', cell: row => row.category || format.missing},
				{
					title: 'Tenant',
					cell: row => [
						parts.brief(row.tenant),
						row.joined ? el('div.muted.small', 'joined') : null,
						row.client_gone ? el('div.muted.small', 'left') : null
					]
				},
				{
					title: 'Status',
					num: true,
					cell: row =>
						el('span' + (row.status >= 500 ? '.bad' : row.status >= 400 ? '.warn' : ''), String(row.status))
				},
				{
					title: 'Similarity',
					num: true,
					meaning: 'similarity',
					sort: row => row.similarity ?? -1,
					cell: row => [
						format.similarity(row.similarity),
						row.tokens_saved
							? el('div.muted.small', format.count(row.tokens_saved) + ' tokens saved')
							: null
					]
				},
				{
					title: 'Time taken',
					num: true,
					sort: row => row.ms,
					cell: row => [
						format.millis(row.ms),
						parts.meter(
							[
								[row.embed_ms / row.ms, 'k3'],
								[row.cache_ms / row.ms, 'k1'],
								[row.upstream_ms / row.ms, 'k5']
							],
							'vector ' +
								format.millis(row.embed_ms ?? 0) +
								', cache ' +
								format.millis(row.cache_ms ?? 0) +
								', upstream ' +
								format.millis(row.upstream_ms ?? 0)
						)
					]
				}
			]
		});
		const nothing = el('div');
		const listed = parts.card(
			'Requests',
			el(
				'form.grid',
				{onsubmit: event => event.preventDefault()},
				parts.field('Search', words),
				parts.field(
					'What the cache said',
					parts.select(
						[['', 'all'], 'exact', 'hit', 'stale', 'audit', 'miss', 'negative', 'bypass', 'down'],
						state.status,
						value => {
							state.status = value;
							draw();
						}
					)
				)
			),
			counts,
			table,
			el(
				'ul.legend',
				[
					['vector', 3],
					['cache', 1],
					['upstream', 5]
				].map(([name, c]) => el('li', el('span.swatch.k' + c), name))
			)
		);
		dom.fill(body, nothing, listed);

		function draw() {
			const wanted = state.words.toLowerCase();
			const right = all.filter(
				row =>
					(!state.status || row.cache === state.status) &&
					(!wanted ||
						[row.model, row.route, row.tenant, row.category, row.reason, row.question, row.status]
							.join(' ')
							.toLowerCase()
							.includes(wanted))
			);
			dom.text(
				counts,
				right.length +
					' of ' +
					all.length +
					' requests' +
					(right.length > shown_max ? '; the first ' + shown_max + ' are shown' : '')
			);
			table.set(right.slice(0, shown_max));
		}

		await scope.poll(async () => {
			let now = await scope.get('requests', {since: last});
			if (now.began_ms !== began) {
				// another gateway: its numbers begin anew
				if (last !== null) now = await scope.get('requests');
				all = [];
				began = now.began_ms;
			}
			if (now.requests.length) {
				all = [...now.requests, ...all].sort((a, b) => b.number - a.number).slice(0, 1000);
			}
			last = all[0]?.number ?? null;
			listed.hidden = all.length === 0;
			dom.fill(nothing, all.length ? null : parts.card('Begin here', firstSteps()));
			draw();
		});
	}
});
