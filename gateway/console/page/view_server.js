// view_server.js - view 9: what was slow, who is connected, what is set otherwise than by default.
'use strict';

shell.view({
	id: 'server',
	key: '9',
	title: 'Server',
	lead: 'Slow commands, latency, the log, clients, settings, the device.',
	async open({scope, body, state}) {
		state.settings ||= 'differs';
		const figures = parts.figures([
			['up', 'Up for'],
			['memory', 'Memory', 'memory'],
			['clients', 'Clients', 'clients'],
			['p99', 'Search p99', 'searches'],
			['queue', 'Reads in flight', 'queue'],
			['reads', 'Device reads', 'reads'],
			['log', 'Log', 'journal'],
			['lanes', 'Lanes', 'lanes']
		]);
		const slow = parts.table({
			caption: 'Slow log',
			key: row => row.id,
			empty: parts.empty(
				'No command was slow.',
				'Commands that take longer than this many microseconds are listed:',
				'redis-cli CONFIG SET slowlog-log-slower-than 10000'
			),
			columns: [
				{title: 'When', kind: 'keep', cell: row => format.clock(row.time_ms)},
				{title: 'Took', num: true, sort: row => row.us, cell: row => format.micros(row.us)},
				{title: 'Command', kind: 'text', cell: row => el('code.clip', row.command.join(' '))},
				{title: 'What it did', kind: 'text', cell: row => row.note || ''},
				{title: 'Client', cell: row => row.name || row.client || ''}
			]
		});
		const latency = parts.table({
			caption: 'Latency events',
			key: row => row.event,
			empty: parts.empty(
				'Nothing is watched or nothing was late.',
				'Events longer than this many milliseconds are kept:',
				'redis-cli CONFIG SET latency-monitor-threshold 50'
			),
			columns: [
				{title: 'Event', cell: row => row.event},
				{title: 'Last', kind: 'keep', cell: row => format.clock(row.time_ms)},
				{title: 'Took', num: true, cell: row => format.millis(row.last_ms)},
				{title: 'Longest', num: true, cell: row => format.millis(row.max_ms)}
			]
		});
		const clients = parts.table({
			caption: 'Clients',
			key: row => row.id,
			empty: 'Nobody is connected.',
			columns: [
				{title: 'Address', kind: 'keep', cell: row => row.addr},
				{title: 'Name', kind: 'text', cell: row => row.name || format.missing},
				{title: 'User', cell: row => row.user},
				{title: 'Connected', num: true, sort: row => row.age, cell: row => format.duration(row.age * 1000)},
				{title: 'Idle', num: true, sort: row => row.idle, cell: row => format.duration(row.idle * 1000)},
				{title: 'Memory', num: true, sort: row => row['tot-mem'], cell: row => format.bytes(row['tot-mem'])},
				{title: 'Last command', cell: row => el('code', String(row.cmd))}
			]
		});
		const setting = [
			{title: 'Setting', cell: row => el('code', row.name)},
			{title: 'Value', kind: 'text', cell: row => el('code' + (row.differs ? '.strong' : ''), String(row.value))},
			{title: 'Default', kind: 'text', cell: row => el('code.muted', String(row.default ?? ''))}
		];
		const settings = parts.table({
			caption: 'Settings of the server',
			key: row => row.name,
			empty: 'All settings are as they are by default.',
			columns: setting
		});
		const gateway = el('div');
		const log = el('pre.scroll', {tabIndex: 0, role: 'region', 'aria-label': 'Newest lines of the log'});
		let known = [];
		const showSettings = () => settings.set(state.settings === 'all' ? known : known.filter(one => one.differs));
		const commands = parts.table({
			caption: 'Commands by time',
			key: row => row.name,
			empty: 'No command has run yet.',
			columns: [
				{title: 'Command', cell: row => el('code', row.name)},
				{title: 'Calls', num: true, sort: row => row.calls, cell: row => format.count(row.calls)},
				{title: 'Half below', num: true, sort: row => row.p50, cell: row => format.micros(row.p50)},
				{title: '99 % below', num: true, sort: row => row.p99, cell: row => format.micros(row.p99)}
			]
		});
		const at = {
			slowlog: parts.told(slow),
			latency: parts.told(latency),
			histogram: parts.told(commands),
			log: parts.told(log),
			clients: parts.told(clients),
			settings: parts.told(settings),
			gateway_settings: parts.told(gateway)
		};
		dom.fill(
			body,
			figures,
			parts.cardWith('Slow log', parts.meant('the newest 64', 'slow-log'), at.slowlog),
			el(
				'div.cols',
				parts.cardWith('Latency events', parts.meant('what was late', 'latency'), at.latency),
				parts.cardWith('Commands', 'how long they take', at.histogram)
			),
			parts.cardWith('Log', 'the newest 200 lines', at.log),
			parts.card('Clients', at.clients),
			el(
				'section.card',
				{'aria-label': 'Settings'},
				el(
					'header',
					el('h2', 'Settings of the server'),
					parts.choice(
						'Which settings',
						[
							['differs', 'that differ'],
							['all', 'all']
						],
						state.settings,
						value => {
							state.settings = value;
							showSettings();
						}
					)
				),
				at.settings
			),
			parts.card('Settings of the gateway', at.gateway_settings)
		);
		let gatewaySays = null;

		await scope.poll(async () => {
			const now = await scope.get('server');
			figures.take(now.info, ['up', 'memory', 'clients', 'p99', 'queue', 'reads', 'log', 'lanes'], info => {
				const q = info.quire || {};
				figures.set(
					'up',
					format.duration((info.server?.uptime_in_seconds ?? NaN) * 1000),
					'version ' + (info.server?.quire_version ?? '?')
				);
				figures.set(
					'memory',
					format.bytes(info.memory?.used_memory_rss),
					info.memory?.maxmemory ? 'of ' + format.bytes(info.memory.maxmemory) : 'resident; no limit is set'
				);
				figures.set(
					'clients',
					format.count(info.clients?.connected_clients),
					'of ' + format.count(info.clients?.maxclients)
				);
				figures.set(
					'p99',
					q.searches ? format.micros(q.search_latency_us?.p99) : format.missing,
					q.searches ? 'p50 ' + format.micros(q.search_latency_us?.p50) : 'no search yet'
				);
				figures.set(
					'queue',
					format.count(q.reads_in_flight),
					format.count(q.reads_waiting) + ' wait',
					q.reads_waiting ? 'warn' : ''
				);
				figures.set(
					'reads',
					format.count(q.device_reads),
					q.device_read_errors
						? q.device_read_errors + ' failed'
						: format.bytes(q.device_read_bytes) + ', none failed',
					q.device_read_errors ? 'bad' : ''
				);
				figures.set('log', format.bytes(q.log_bytes), 'files of sets ' + format.bytes(q.disk_bytes));
				figures.set('lanes', format.count(q.lanes), q.engine + (q.cpu ? ', ' + q.cpu : ''));
			});
			at.slowlog.take(now.slowlog, part => slow.set(part));
			at.latency.take(now.latency, part => latency.set(part));
			at.clients.take(now.clients, part => clients.set(part));
			at.histogram.take(now.histogram, part =>
				commands.set(
					Object.entries(part)
						.map(([name, one]) => ({name, calls: one.calls, ...quantiles(one)}))
						.sort((a, b) => b.calls - a.calls)
						.slice(0, 40)
				)
			);
			at.log.take(now.log, part => {
				const end = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
				dom.text(log, part.join('\n') || 'Nothing was logged.');
				if (end) log.scrollTop = log.scrollHeight; // who has not scrolled up sees the newest
			});
			at.settings.take(now.settings, part => {
				known = part;
				showSettings();
			});
			// the gateway's are for who may see the server's
			at.gateway_settings.take(now.gateway_settings || now.settings, part => {
				const says = JSON.stringify(part, null, 1);
				if (says === gatewaySays) return;
				gatewaySays = says;
				dom.fill(
					gateway,
					el(
						'pre.scroll',
						{tabIndex: 0, role: 'region', 'aria-label': 'Settings of the gateway as JSON'},
						says
					)
				);
			});
		});

		// Of cumulative counts by upper bound.
		function quantiles(one) {
			const bins = Object.entries(one.histogram_usec || {})
				.map(([bound, n]) => [Number(bound), n])
				.sort((a, b) => a[0] - b[0]);
			const at = share => bins.find(([, n]) => n >= one.calls * share)?.[0];
			return {p50: at(0.5), p99: at(0.99)};
		}
	}
});
