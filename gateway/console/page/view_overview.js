// view_overview.js - view 1: is it well, what is asked, what comes from the cache, what that saves.
'use strict';

// Outcomes in the order in which they are piled, with their colours in all views.
const outcomes = [
	['exact', 2],
	['hit', 1],
	['stale', 4],
	['audit', 3],
	['miss', 5],
	['negative', 5],
	['bypass', 5],
	['down', 6]
];
const served = ['exact', 'hit', 'stale'];
const outcomeTone = status =>
	({hit: 'info', exact: 'good', stale: 'info', audit: 'warn', down: 'bad', bypass: 'warn'})[status] || '';

shell.view({
	id: 'overview',
	key: '1',
	title: 'Overview',
	lead: 'What the cache answers, and what that saves.',
	early: ['overview', 'history?resolution=1s', 'history?resolution=1m'],
	async open({scope, pick, body, state}) {
		state.span ||= '1s';
		const gateway = shell.me().gateway; // otherwise the figures are those of the server, whoever asked it
		const figures = parts.figures(
			[
				['rate', gateway ? 'Requests' : 'Look-ups', 'requests'],
				['m1', 'Hit rate, 1 min', 'hit-rate'],
				['h1', 'Hit rate, 1 h', 'hit-rate'],
				['h24', 'Hit rate, 24 h', 'hit-rate'],
				['tokens', 'Tokens saved', 'saved'],
				['time', 'Model time saved', 'saved'],
				['cost', 'Money saved', 'saved'],
				['hit', 'First byte of a hit', 'first-byte'],
				['miss', 'First byte of a miss', 'first-byte'],
				['entries', 'Entries', 'entries'],
				['upstream', 'Upstream errors', 'errors'],
				['encoder', 'Encoder errors', 'errors']
			].filter(([name]) => gateway || !['hit', 'miss'].includes(name))
		);
		for (const name of ['upstream', 'encoder']) figures.hide(name, true);
		const piles = gateway
			? outcomes
					.filter(([name]) => !['negative', 'bypass'].includes(name))
					.map(([name, c]) => [
						name === 'miss' ? 'miss, negative, bypass' : name,
						c,
						name === 'miss' ? ['miss', 'negative', 'bypass'] : [name]
					])
			: [
					['answered', 1, ['cache_hits']],
					['not answered', 5, ['misses']]
				];
		const traffic = chart.draw(scope, {
			label: 'Requests a second by what the cache said',
			height: 220,
			series: piles.map(([label, c]) => ({label, c, stack: true, show: value => format.rate(value) + '/s'}))
		});
		const rates = chart.draw(scope, {
			label: 'Hit rate',
			unit: chart.percent,
			top: 1,
			height: 150,
			series: [{label: 'hit rate', c: 1, area: true, show: format.share}]
		});
		const firsts = chart.draw(scope, {
			label: 'First byte, p50 and p99',
			unit: format.millis,
			height: 150,
			series: [
				{label: 'hit p50', c: 1, show: format.millis},
				{label: 'hit p99', c: 1, dash: [4, 3], show: format.millis},
				{label: 'miss p50', c: 3, show: format.millis},
				{label: 'miss p99', c: 3, dash: [4, 3], show: format.millis}
			]
		});
		const searches = chart.draw(scope, {
			label: 'Searches and blocks read a second',
			height: 150,
			series: [
				{label: 'searches', c: 1, show: v => format.rate(v) + '/s'},
				{label: 'blocks read', c: 3, show: v => format.rate(v) + '/s'}
			]
		});
		const health = el('div'),
			nothing = el('div');
		pick.append(
			parts.choice(
				'Span of the graphs',
				[
					['1s', '10 minutes'],
					['1m', '24 hours']
				],
				state.span,
				value => {
					state.span = value;
					scope.tick();
				}
			)
		);
		dom.fill(
			body,
			nothing,
			figures,
			parts.cardWith(gateway ? 'Requests' : 'Look-ups', 'a second, by what the cache said', traffic),
			el(
				'div.cols.three',
				parts.cardWith('Hit rate', 'answered from an entry, of all look-ups', rates),
				gateway ? parts.cardWith('First byte', 'at the gateway', firsts) : null,
				parts.cardWith('Vector sets', 'searches and the blocks they read', searches)
			),
			parts.card('State', health)
		);
		let healthSays = null;

		await scope.poll(async () => {
			const [now, now_ms] = await Promise.all([
				scope.get('overview'),
				past.read(scope, '1s'),
				past.read(scope, '1m')
			]);
			const cache = now.server.cache;
			const names = gateway ? outcomes.map(([name]) => name) : ['cache_requests', 'cache_hits'];
			const all = sum => (gateway ? names.reduce((total, name) => total + sum[name], 0) : sum.cache_requests);
			const answered = sum => (gateway ? served.reduce((total, name) => total + sum[name], 0) : sum.cache_hits);
			let any = cache.cache_requests > 0 || (!gateway && now.server.quire?.searches > 0);
			for (const [slot, ms] of [
				['m1', 6e4],
				['h1', 36e5],
				['h24', 864e5]
			]) {
				const sum = past.sum(names, now_ms - ms),
					n = all(sum);
				figures.set(
					slot,
					n ? format.share(answered(sum) / n) : format.missing,
					'of ' + format.count(n) + ' look-ups'
				);
				if (slot === 'm1') figures.set('rate', format.rate(n / 60) + ' /s', 'mean of the last minute');
				any ||= n > 0;
			}
			const {judge, tokens_saved_net} = now.gateway;
			if (judge?.calls)
				figures.set(
					'tokens',
					format.count(tokens_saved_net),
					'since the gateway began, less ' +
						format.count(judge.prompt_tokens + judge.completion_tokens) +
						' of the judge'
				);
			else figures.set('tokens', format.count(cache.cache_tokens_saved), 'in answers that were served');
			figures.set('time', format.duration(cache.cache_llm_ms_saved), 'that a model did not compute');
			figures.set(
				'cost',
				format.dollars(cache.cache_cost_saved - cache.cache_cost_audits),
				cache.cache_cost_audits
					? 'since the start, less ' + format.dollars(cache.cache_cost_audits) + ' of audits'
					: 'since the start'
			);
			figures.set(
				'entries',
				format.count(cache.cache_entries),
				format.bytes(cache.cache_memory_bytes) + ' of memory'
			);
			drawErrors(now.gateway, past.sum(['upstream_errors', 'encoder_errors'], now_ms - 6e4));
			const r = state.span,
				per = 1 / past.step(r),
				ts = past.seconds(r);
			if (gateway)
				for (const kind of ['hit', 'miss']) {
					const newest = name =>
						past
							.column('1s', name)
							.concat(past.column('1m', name).slice(-1))
							.filter(value => value !== null)
							.at(-1);
					const p50 = newest('first_' + kind + '_p50_ms');
					figures.set(
						kind,
						format.millis(p50),
						p50 === undefined ? 'none yet' : 'p99 ' + format.millis(newest('first_' + kind + '_p99_ms'))
					);
				}
			const column = name => {
				if (name !== 'misses') return past.column(r, name, value => value * per);
				const hits = past.column(r, 'cache_hits');
				return past
					.column(r, 'cache_requests')
					.map((value, i) => (value === null ? null : Math.max(0, value - (hits[i] || 0)) * per));
			};
			const added = list =>
				list.map(column).reduce((a, b) => a.map((value, i) => (value === null ? b[i] : value + (b[i] || 0))));
			traffic.set([ts, ...piles.map(([, , list]) => added(list))]);
			const top = gateway ? added(served) : column('cache_hits'),
				whole = gateway ? added(names) : column('cache_requests');
			rates.set([ts, whole.map((value, i) => (value ? top[i] / value : null))]);
			firsts.set([
				ts,
				...['hit_p50', 'hit_p99', 'miss_p50', 'miss_p99'].map(name => past.column(r, 'first_' + name + '_ms'))
			]);
			searches.set([ts, column('searches'), column('search_reads')]);
			drawState(now);
			if (nothing.hidden !== any || !nothing.firstChild)
				dom.fill(nothing, any ? null : parts.card('Begin here', firstSteps()));
			nothing.hidden = any;
		});

		// Hidden as long as there was none and all are well.
		function drawErrors({upstreams, encoder}, sum) {
			const well = upstreams.filter(one => one.healthy).length,
				away = well < upstreams.length,
				open = encoder?.breaker_open;
			const show = (name, n, bad, words) => {
				const rate = sum[name + '_errors'] / 60;
				figures.hide(name, !n && !bad);
				figures.set(
					name,
					format.rate(rate) + ' /s',
					words + '; ' + format.count(n) + ' since the start',
					bad ? 'bad' : rate ? 'warn' : ''
				);
			};
			show(
				'upstream',
				upstreams.reduce((total, one) => total + one.errors, 0),
				away,
				well + ' of ' + upstreams.length + ' healthy'
			);
			show('encoder', encoder?.failures || 0, open, open ? 'left alone for a while' : 'it answers');
		}

		function drawState(now) {
			const g = now.gateway,
				server = now.server.server || {};
			const away = g.server?.breaker_open;
			const rows = [
				[
					'quire-server',
					away ? 'bad' : 'good',
					away ? 'left alone for a while after failures' : 'answers',
					[
						'version ' + server.quire_version,
						'up ' + format.duration(server.uptime_in_seconds * 1000),
						g.server?.last_failure
					]
						.filter(Boolean)
						.join(' · ')
				]
			];
			for (const one of g.upstreams)
				rows.push([
					'upstream ' + one.name,
					one.healthy ? 'good' : 'bad',
					one.healthy ? 'healthy' : 'not healthy',
					''
				]);
			if (gateway)
				rows.push([
					'cache ' + (g.cache.name || ''),
					g.cache.ready ? 'good' : 'warn',
					g.cache.ready ? 'ready' : 'not ready',
					g.cache.ready
						? g.cache.vectors === false
							? g.cache.why_no_vectors || 'exact answers only'
							: ''
						: g.cache.why
				]);
			if (gateway)
				rows.push([
					'encoder',
					!g.encoder.there ? '' : g.encoder.breaker_open ? 'bad' : 'good',
					!g.encoder.there ? 'none' : g.encoder.breaker_open ? 'left alone after failures' : 'answers',
					g.encoder.there
						? [g.encoder.name, g.encoder.dim + ' dimensions', g.encoder.last_failure]
								.filter(Boolean)
								.join(' · ')
						: 'near answers need one: embed-url or embed-file'
				]);
			for (const one of g.cache?.diagnoses || [])
				rows.push(['tenant ' + one.tenant, 'warn', 'contexts differ', one.sentence]);
			for (const one of g.cache?.settings_not_in_force || [])
				rows.push(['settings', 'warn', 'not in force', one]);
			const says = JSON.stringify(rows.map(row => String(row).replace(/up [^·]*·?/, '')));
			if (says === healthSays) return;
			healthSays = says;
			dom.fill(
				health,
				el(
					'dl.pairs',
					rows.map(([name, tone, word, more]) => [
						el('dt', name),
						el(
							'dd',
							el('span.live', el('span.dot' + (tone ? '.' + tone : '')), word),
							more ? [' ', el('span.muted', more)] : null
						)
					])
				),
				gateway ? null : el('p.muted.small', 'No upstream is configured: this gateway shows the server only.')
			);
		}
	}
});

function firstSteps() {
	if (!shell.me().gateway)
		return parts.empty(
			'Nothing has been asked of this server.',
			'The gateway was started without an upstream. To cache the answers of a model, start it with one and give its address to your application:',
			'quire-gateway --upstream http://127.0.0.1:8000 --listen 127.0.0.1:8080\nexport OPENAI_BASE_URL=http://127.0.0.1:8080/v1'
		);
	return parts.empty(
		'No request has come yet.',
		"Give the gateway's address to your application, or ask by hand; the second time the answer comes from the cache:",
		'export OPENAI_BASE_URL=' +
			location.origin +
			'/v1\ncurl -i ' +
			location.origin +
			"/v1/chat/completions -H 'Content-Type: application/json' \\\n" +
			'  -d \'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}\''
	);
}
