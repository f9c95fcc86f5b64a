// view_tenants.js - view 7: who costs what, who waits, whose entries fill the caches.
'use strict';

shell.view({
	id: 'tenants',
	key: '7',
	title: 'Tenants',
	lead: 'Who asks, what it costs, who waits for whom.',
	async open(view) {
		const {scope, body} = view;
		const cache = await shell.cacheOf(view, 'tenants');
		const figures = parts.figures([
			['n', 'Tenants', 'tenants'],
			['queries', 'Searches', 'searches'],
			['running', 'Running', 'waits'],
			['waiting', 'Waiting', 'waits'],
			['refused', 'Refused', 'refusals'],
			['reads', 'Reads', 'reads']
		]);
		const costs = parts.table({
			caption: 'Tenants by cost',
			key: row => row.name ?? 'user ' + row.user,
			empty: parts.empty(
				'No search has named a tenant.',
				'Make a set with tenants and search in one of them; requests are then counted by tenant, and share the lanes fairly:',
				'redis-cli VCREATE docs DIM 3 TENANTS\nredis-cli VADD docs VALUES 3 1 2 1 a TENANT acme\nredis-cli VSIM docs VALUES 3 1 2 1 TENANT acme'
			),
			columns: [
				{
					title: 'Tenant',
					kind: 'text',
					cell: row =>
						row.name ??
						el('span', 'user ' + row.user, el('div.muted.small', 'requests that named no tenant'))
				},
				{
					title: 'Share of cost',
					num: true,
					meaning: 'tenant-cost',
					sort: row => row.cost_us,
					cell: row => [format.share(row.share), parts.meter([[row.share, 'k1']], format.share(row.share))]
				},
				{title: 'Weight', num: true, cell: row => format.count(row.weight)},
				{title: 'Searches', num: true, sort: row => row.queries, cell: row => format.count(row.queries)},
				{title: 'Failed', num: true, cell: row => format.count(row.failed)},
				{title: 'Refused', num: true, meaning: 'refusals', cell: row => format.count(row.refused)},
				{title: 'Running', num: true, cell: row => format.count(row.running)},
				{title: 'Waiting', num: true, cell: row => format.count(row.waiting)},
				{title: 'Wait p99', num: true, meaning: 'waits', cell: row => format.micros(row.wait_p99_us)},
				{title: 'Latency p99', num: true, cell: row => format.micros(row.latency_p99_us)},
				{
					title: 'Reads',
					num: true,
					meaning: 'reads',
					sort: row => row.reads,
					cell: row => format.count(row.reads)
				},
				{title: 'Processor', num: true, sort: row => row.cpu_us, cell: row => format.micros(row.cpu_us)}
			]
		});
		const scopes = parts.table({
			caption: 'Scopes with most entries',
			key: row => row.scope,
			empty: parts.empty(
				'No cache has entries yet.',
				'A scope is what keeps the answers of one tenant from another: the gateway makes one of the credential.',
				'curl $OPENAI_BASE_URL/chat/completions -H "Authorization: Bearer $KEY" ...'
			),
			columns: [
				{title: 'Scope', kind: 'text', cell: row => row.scope || '(none: shared by all)'},
				{title: 'Entries', num: true, sort: row => row.entries, cell: row => format.count(row.entries)},
				{title: 'Requests', num: true, sort: row => row.requests, cell: row => format.count(row.requests)},
				{title: 'Hits', num: true, cell: row => format.count(row.hits)},
				{
					title: 'Hit rate',
					num: true,
					meaning: 'hit-rate',
					cell: row => (row.requests ? format.share(row.hits / row.requests) : format.missing)
				}
			]
		});
		const told = parts.told(scopes);
		dom.fill(
			body,
			figures,
			parts.cardWith('Searches by tenant', 'of vector sets and indexes; those that cost most first', costs),
			parts.cardWith(
				cache ? 'Scopes of ' + cache : 'Scopes',
				parts.meant('the ten with most entries', 'scope'),
				told
			)
		);
		await scope.poll(async () => {
			const now = await scope.get('tenants', {cache});
			const sum = now.tenants,
				rows = Object.entries(sum)
					.filter(([key]) => /^tenant\d+$/.test(key))
					.map(([, one]) => one);
			figures.set('n', format.count(sum.tenants), 'remembered');
			figures.set('queries', format.count(sum.tenant_queries), format.count(sum.tenant_failed) + ' failed');
			figures.set(
				'running',
				format.count(sum.tenant_running),
				format.count(sum.searches_at_once) + ' at once before others wait'
			);
			figures.set('waiting', format.count(sum.tenant_waiting), 'in line now');
			figures.set(
				'refused',
				format.count(sum.tenant_refused),
				'beyond a limit',
				sum.tenant_refused ? 'warn' : ''
			);
			figures.set('reads', format.count(sum.tenant_reads), 'blocks');
			costs.set(rows.map(row => ({...row, share: sum.tenant_cost_us ? row.cost_us / sum.tenant_cost_us : 0})));
			told.take(now.scopes, part => scopes.set(part));
		});
	}
});
