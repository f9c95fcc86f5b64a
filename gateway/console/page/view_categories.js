// view_categories.js - view 2: all categories of a cache in one table.
'use strict';

// Where a category stands with its budget: the bound at the threshold in force, against RISK.
function budgetOf(one) {
	const delta = Number(one.settings.risk);
	if (one.settings.risk === undefined || !(delta > 0)) return null;
	return {delta, used: one.tune?.threshold > 1 || one.tune?.bound == null ? 0 : one.tune.bound / delta};
}

// Cells whose parts were refused say so; why, stands above the table.
const columnsOf = columns =>
	columns.map(one => ({
		...one,
		cell: row => {
			const no = one.of?.map(name => parts.refusal(row[name])).find(Boolean);
			return no ? el('span.muted', {title: no}, 'refused') : one.cell(row);
		}
	}));

// What SC.INFO says of a limit.
const limit = (info, name) => parts.refusal(info) || (info[name] ? 'of ' + format.bytes(info[name]) : 'no limit');

// The API answers of so many categories and no more.
const firstOf = ({categories, names}) =>
	categories.length < names.length ? 'The first ' + categories.length + ' of ' + names.length + ' categories.' : '';

shell.view({
	id: 'categories',
	key: '2',
	title: 'Categories',
	lead: 'A category is a kind of question, with its own threshold, time to live and quota.',
	async open(view) {
		const {scope, body, pick} = view;
		const cache = await shell.cacheOf(view, 'categories');
		if (!cache) return dom.fill(body, parts.card('Begin here', shell.noCache()));
		const figures = parts.figures([
			['entries', 'Entries', 'entries'],
			['requests', 'Requests', 'requests'],
			['rate', 'Hit rate', 'hit-rate'],
			['memory', 'Memory', 'quota'],
			['disk', 'Disk', 'quota'],
			['labels', 'Labels', 'labels'],
			['wrong', 'False hits of labels', 'false-hits']
		]);
		const table = parts.table({
			caption: 'Categories of ' + cache,
			key: row => row.name,
			empty: parts.empty(
				'The cache has no category yet.',
				'Make one; RISK is the share of requests that may get a wrong answer:',
				'redis-cli SC.CAT.SET ' + cache + ' faq RISK 0.02 TTL 86400000'
			),
			columns: columnsOf([
				{
					title: 'Category',
					sort: row => row.name,
					cell: row => el('a', {href: shell.link('category', cache, row.name)}, row.name)
				},
				{title: 'Mode', of: ['settings'], cell: row => row.settings.mode},
				{
					title: 'Requests',
					num: true,
					of: ['stats'],
					sort: row => row.stats.requests,
					cell: row => format.count(row.stats.requests)
				},
				{
					title: 'Answered',
					num: true,
					of: ['stats'],
					meaning: 'hit-rate',
					cell: row =>
						row.stats.requests
							? [
									format.share(row.stats.hit_rate),
									parts.meter(
										[
											[row.stats.exact / row.stats.requests, 'k2'],
											[row.stats.hits / row.stats.requests, 'k1'],
											[row.stats.stale / row.stats.requests, 'k4']
										],
										'exact ' +
											format.count(row.stats.exact) +
											', near ' +
											format.count(row.stats.hits) +
											', stale ' +
											format.count(row.stats.stale)
									)
								]
							: format.missing
				},
				{
					title: 'Threshold',
					num: true,
					of: ['settings', 'stats'],
					meaning: 'threshold',
					cell: row =>
						row.settings.mode === 'exact'
							? format.missing
							: [
									format.similarity(row.stats.threshold),
									el('div.muted.small', row.settings.sim ? 'fixed' : 'learned')
								]
				},
				{
					title: 'Budget used',
					num: true,
					of: ['settings', 'tune'],
					meaning: 'risk',
					cell: row => {
						const budget = row.settings.mode === 'exact' ? null : budgetOf(row);
						if (!budget) return el('span.muted', 'none set');
						return [
							format.share(budget.used),
							el('div.muted.small', 'of ' + format.share(budget.delta)),
							parts.meter(
								[[budget.used, budget.used > 1 ? 'k6' : 'k3']],
								format.share(budget.used) + ' of the budget of ' + format.share(budget.delta)
							)
						];
					}
				},
				{
					title: 'False hits',
					num: true,
					of: ['stats'],
					meaning: 'false-hits',
					cell: row =>
						row.stats.labels
							? [
									format.count(row.stats.false_hits),
									el('div.muted.small', 'of ' + format.count(row.stats.labels) + ' labels')
								]
							: el('span.muted', 'no labels')
				},
				{
					title: 'Entries',
					num: true,
					of: ['stats', 'settings'],
					meaning: 'entries',
					sort: row => row.stats.entries,
					cell: row => [
						format.count(row.stats.entries),
						Number(row.settings.entries)
							? el('div.muted.small', 'of ' + format.count(Number(row.settings.entries)))
							: null
					]
				},
				{
					title: 'Bytes',
					num: true,
					of: ['stats', 'settings'],
					meaning: 'quota',
					sort: row => row.stats.document_bytes,
					cell: row => [
						format.bytes(row.stats.document_bytes),
						Number(row.settings.quota)
							? el('div.muted.small', 'of ' + format.bytes(Number(row.settings.quota)))
							: null
					]
				},
				{
					title: 'Time to live',
					num: true,
					of: ['settings'],
					cell: row => format.duration(Number(row.settings.ttl))
				},
				{title: 'Load', num: true, of: ['stats'], meaning: 'load', cell: row => format.share(row.stats.lam)}
			])
		});
		const some = el('p.muted.small', {role: 'status'}),
			refused = el('p.note', {hidden: true});
		dom.fill(body, figures, parts.card('Categories of ' + cache, refused, some, table));
		await scope.poll(async () => {
			const now = await scope.get('categories', {cache: cache});
			const sum = now.cache,
				info = now.info;
			figures.set('entries', format.count(sum.entries), format.count(sum.pinned) + ' pinned');
			figures.set('requests', format.count(sum.requests), format.count(sum.misses) + ' misses');
			figures.set('rate', sum.requests ? format.share(sum.hit_rate) : format.missing, 'since the start');
			figures.set('memory', format.bytes(sum.memory_bytes), limit(info, 'memory'));
			figures.set('disk', format.bytes(sum.disk_bytes), limit(info, 'disk'));
			figures.set('labels', format.count(sum.labels), 'since the start');
			figures.set(
				'wrong',
				format.count(sum.false_hits),
				sum.labels ? format.share(sum.false_hits / sum.labels) + ' of labels' : 'no labels'
			);
			const no = now.categories.flatMap(row =>
				['settings', 'stats', 'tune'].map(name => parts.refusal(row[name]))
			);
			dom.text(refused, [...new Set(no.filter(Boolean))].join(' '));
			refused.hidden = !refused.textContent;
			dom.text(some, firstOf(now));
			table.set(now.categories);
		});
	}
});
