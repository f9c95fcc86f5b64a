// redis4.js - FT.* and JSON.* through node-redis 4 (RESP2), which reads FT.INFO by position. @langchain/redis bundles
// it.
'use strict';
const {createClient} = require('redis4');
const {port, check, run} = require('../../e2e/node/checks.js');
const {suite} = require('./node_redis_suite.js');

const info = (reply) => ({
    name: reply.indexName,
    docs: reply.numDocs,
    prefixes: reply.indexDefinition.prefixes,
    attributes: reply.attributes.map((a) => a.attribute)
});

run(async () => {
    const problems = [];
    const client = createClient({socket: {host: '127.0.0.1', port, reconnectStrategy: false}});
    client.on('error', (e) => problems.push(e.message));
    await client.connect();
    await suite(client, 'redis 4', {info, path: (path) => path});
    await client.quit();
    check('redis 4: no error events', problems.length === 0, problems);
});
