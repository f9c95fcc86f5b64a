// meanings.js - what each figure means, and where the docs say more; figures of the views link here.
'use strict';

const meanings = [
	[
		'requests',
		'Requests',
		'Look-ups of the cache. A question of PROBE that has no vector yet does not count.',
		'docs/operations.md#info-cache'
	],
	[
		'hit-rate',
		'Hit rate',
		'Look-ups that were answered from an entry (hit, exact, stale) as a share of all look-ups.',
		'docs/operations.md#info-cache'
	],
	[
		'status',
		'Hit, exact, stale, miss, audit',
		'hit: another wording was near enough. exact: the same request. stale: older than its time to live, but still allowed. ' +
			'miss: the model was asked. negative: known to have no answer that may be kept. bypass: the cache stood aside. audit: a would-be hit that ' +
			'was sent to the model to get a label.',
		'docs/cache.md#what-a-lookup-does'
	],
	[
		'saved',
		'Tokens, seconds, dollars saved',
		'What the answers that were served had taken when the model made them; tokens of a gateway with a judge less those that it took, dollars less what audits cost.',
		'docs/operations.md#info-cache'
	],
	[
		'first-byte',
		'First byte',
		'From the whole request to the first byte of the answer, at the gateway. p50: half of the requests are faster; p99: all but one in a hundred.',
		'docs/gateway.md#operation'
	],
	[
		'errors',
		'Errors of upstreams, of the encoder',
		'Calls of the gateway that failed, a second, mean of the last minute. One that fails several times in a row is left alone for a while.',
		'docs/gateway.md#failures'
	],
	[
		'similarity',
		'Similarity',
		'The cosine of two vectors, 0 to 1, higher is nearer: in every command, setting and reply.',
		'docs/cache.md#terms'
	],
	[
		'threshold',
		'Threshold',
		'The similarity from which an entry may answer. Above 1 (none) nothing is served by similarity at present: the budget has not enough labels yet.',
		'docs/thresholds.md#the-rule'
	],
	[
		'risk',
		'Error budget (RISK)',
		'The share of all requests that may get a wrong answer. The threshold follows from it and from labels.',
		'docs/thresholds.md'
	],
	[
		'bound',
		'Bound',
		'The share of requests that get a wrong answer at a threshold, estimated from labels on the careful side. It stays below the budget.',
		'docs/thresholds.md#the-rule'
	],
	[
		'labels',
		'Labels',
		'Verdicts on pairs (question, answer from the cache): of audits, of judged misses, of feedback.',
		'docs/thresholds.md'
	],
	['false-hits', 'False hits', 'Labelled answers that were wrong.', 'docs/operations.md#info-cache'],
	[
		'guards',
		'Guards',
		'Rules that keep two questions apart however near they are: another number, name, date, unit, or a negation.',
		'docs/guards.md'
	],
	[
		'quota',
		'Quota',
		'Bytes and entries that a category may take (QUOTA, ENTRIES). Without one it may take what the cache has (MEMORY, DISK).',
		'docs/cache-settings.md'
	],
	[
		'load',
		'Load',
		'How full a model is, 0 to 1, as SC.LOAD reported it. Between .6 and .9 the budget of categories with LOADMAX rises.',
		'docs/cache.md#categories'
	],
	[
		'scope',
		'Scope',
		'Keys and values (tenant, user, model) that must be equal, all of them, before an entry may answer.',
		'docs/cache.md#scopes-are-walls'
	],
	[
		'entries',
		'Entries',
		'Answers that the cache holds, each with its question. They go when they end, or when others need the room; pinned ones stay.',
		'docs/cache.md#what-is-kept-where'
	],
	[
		'look-up',
		'Look-up p50, p99',
		'Time of a look-up in the server, without the model: half of them, and all but one in a hundred, are faster.',
		'docs/operations.md#info-cache'
	],
	[
		'searches',
		'Searches',
		'Searches of vector sets that ended (VSIM), and how long they took without waiting for their turn: all but one in a hundred are faster than p99.',
		'docs/operations.md#info-quire'
	],
	[
		'reads',
		'Reads',
		'Blocks of 4 KiB and more that searches read from the disk. The measure of a search that does not depend on the machine.',
		'docs/operations.md#info-quire'
	],
	[
		'rounds',
		'Rounds',
		'How often a search waited for the disk. The blocks of one round are read at the same time.',
		'docs/wire.md#vsim'
	],
	[
		'effort',
		'Effort',
		'How much of the index a search looks at: blocks of a page graph, or inverted lists. More is slower and finds more.',
		'docs/wire.md#vsim'
	],
	['recall', 'Recall', 'The share of the true nearest that a search names.', 'docs/glossary.md#a-search'],
	[
		'segments',
		'Segments',
		'Files of a set that are written once and searched from the disk. Merges make few of many.',
		'docs/glossary.md#collections-that-change'
	],
	[
		'rows',
		'Elements, rows',
		'An element has a name, a vector and attributes. Each of its versions is a row, in memory or in a segment, until a merge.',
		'docs/glossary.md#collections-that-change'
	],
	['disk', 'On the disk', 'Files of all segments, without the log.', 'docs/wire.md#vinfo'],
	[
		'dead-rows',
		'Dead rows',
		'Rows of segments that were replaced or removed. The next merge leaves them out.',
		'docs/wire.md#vinfo'
	],
	[
		'memory',
		'Memory',
		'Entries, rows that are not yet in a segment, what segments hold in memory, and hot blocks.',
		'docs/operations.md#memory'
	],
	[
		'tenants',
		'Granted to',
		'Tenants who may see an element of a set (VADD ... TENANT, VGRANT). Users who are bound to tenants see theirs and nothing else.',
		'docs/wire.md#tenants'
	],
	[
		'tenant-cost',
		'Share of cost',
		"Processor time and reads of a tenant, weighed together, as a share of all tenants'.",
		'docs/operations.md#fair-shares'
	],
	[
		'waits',
		'Wait for its turn',
		"How long a tenant's searches stood in line behind others before they ran.",
		'docs/operations.md#fair-shares'
	],
	[
		'refusals',
		'Refusals',
		'Requests beyond a limit: of the rate, of those at once, of those that wait.',
		'docs/operations.md#fair-shares'
	],
	[
		'clients',
		'Clients',
		'Connections, this page among them; beyond maxclients new ones are refused.',
		'docs/operations.md#limits'
	],
	[
		'journal',
		'Log',
		'The journal of all changes. A checkpoint makes it short again.',
		'docs/operations.md#the-data-folder'
	],
	[
		'lanes',
		'Lanes',
		'Threads that serve; each has its own engine for sockets and the disk.',
		'docs/operations.md#info-quire'
	],
	[
		'queue',
		'Reads in flight, waiting',
		'Given to the device now; held back by reads-in-flight. If many wait for long, the device is the bottleneck.',
		'docs/operations.md#info-quire'
	],
	[
		'slow-log',
		'Slow log',
		'Commands that took longer than slowlog-log-slower-than, from request to reply; of a search also plan, reads, rounds.',
		'docs/operations.md#looking-inside'
	],
	[
		'latency',
		'Latency events',
		'When something took longer than latency-monitor-threshold.',
		'docs/operations.md#looking-inside'
	],
	[
		'variance',
		'Variance in the plane',
		'The map shows two directions of many. Near in the plane means near only as far as the plane holds the variance.',
		'docs/console.md#map'
	]
].map(([id, title, text, page]) => ({id, title, text, docs: page}));

shell.view({
	id: 'meanings',
	title: 'What the figures mean',
	lead: 'A sentence each, and the document that says more.',
	open({args, body}) {
		const list = el(
			'dl.pairs',
			meanings.map(one => [
				el('dt', {id: 'm-' + one.id, tabIndex: -1}, one.title),
				el('dd', one.text, ' ', el('a', {href: docs.link(one.docs)}, one.docs))
			])
		);
		dom.fill(body, el('section.card', list));
		shell.show(args[0] && 'm-' + args[0]);
	}
});
