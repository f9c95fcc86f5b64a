// redis6.js - FT.* and JSON.* through node-redis 6, in RESP2 and in RESP3 (its default).
'use strict';
const {createClient} = require('redis6');
const {port, check, run} = require('../../e2e/node/checks.js');
const {suite} = require('./node_redis_suite.js');

const get = (map, name) => (map instanceof Map ? map.get(name) : map[name]);

function info(reply) {
    const definition = get(reply, 'index_definition');
    return {
        name: get(reply, 'index_name'),
        docs: get(reply, 'num_docs'),
        prefixes: get(definition, 'prefixes'),
        attributes: get(reply, 'attributes').map((a) => get(a, 'attribute'))
    };
}

run(async () => {
    for (const RESP of [2, 3]) {
        const problems = [];
        const client = createClient({socket: {host: '127.0.0.1', port, reconnectStrategy: false}, RESP});
        client.on('error', (e) => problems.push(e.message));
        await client.connect();
        await suite(client, 'RESP' + RESP, {info, path: (path) => ({path})});
        await client.close();
        check(`RESP${RESP}: no error events`, problems.length === 0, problems);
    }
});
