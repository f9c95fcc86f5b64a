// ioredis.js - the server through ioredis: its ready check (INFO), call, callBuffer, pipelines, and many at once.
'use strict';
const Redis = require('ioredis');
const { port, check, rejects, readVectors, numbersOf, same, run } = require('./checks.js');

const queries = readVectors('base.query.fbin');

async function commands(client) {
    check('ping, echo', (await client.ping()) === 'PONG' && (await client.echo('ß€')) === 'ß€');
    check('client name given at connect', (await client.client('GETNAME')) === 'e2e');
    check('config get', same(await client.config('GET', 'port'), ['port', String(port)]));
    check('call VCARD', (await client.call('VCARD', 'words')) === 4000);
    const hits = await client.call('VSIM', 'words', 'ELE', 'apple-0', 'WITHSCORES', 'COUNT', 3);
    check('call VSIM', hits.length === 6 && hits[0] === 'apple-0' && Number(hits[1]) > 0.999, hits);
    const raw = await client.callBuffer('VEMB', 'words', 'apple-0', 'RAW');
    check('callBuffer VEMB RAW', raw[1].length === 64, raw);
    const blob = await client.call('VSIM', 'words', 'FP32', queries[0], 'COUNT', 10);
    const values = await client.call('VSIM', 'words', 'VALUES', 64, ...numbersOf(queries[0]), 'COUNT', 10);
    check('a binary vector and its numbers find the same', same(blob, values) && blob.length === 10, [blob, values]);
    await rejects('an error rejects its promise', client.call('VSIM', 'words', 'VALUES', 1, 1), /dimension mismatch/);
    await rejects('an unknown command', client.call('VNOSUCH', 'words'), /unknown command/);
}

async function writes(client) {
    const vectors = readVectors('base.fbin').slice(0, 300);
    const pipeline = client.pipeline();
    vectors.forEach((v, i) => pipeline.call('VADD', 'e2e:set', 'FP32', v, 'e' + i, 'SETATTR', `{"n":${i}}`));
    const replies = await pipeline.exec();
    check('300 VADD in a pipeline', replies.every(([error, reply]) => error === null && reply === 1));
    const hits = await client.call('VSIM', 'e2e:set', 'FP32', vectors[7], 'WITHSCORES', 'WITHATTRIBS', 'COUNT', 2);
    check('VSIM WITHSCORES WITHATTRIBS', hits.length === 6 && hits[0] === 'e7' && hits[2] === '{"n":7}', hits);
    check('VSETATTR, VGETATTR', (await client.call('VSETATTR', 'e2e:set', 'e7', '{}')) === 1 &&
          (await client.call('VGETATTR', 'e2e:set', 'e7')) === '{}');
    check('VREM, VCARD', (await client.call('VREM', 'e2e:set', 'e7')) === 1 &&
          (await client.call('VCARD', 'e2e:set')) === 299);
    check('VSEAL, VRANGE', (await client.call('VSEAL', 'e2e:set')) === 'OK' &&
          same(await client.call('VRANGE', 'e2e:set', '-', '+', 2), ['e0', 'e1']));
    await rejects('VADD of another dimension', client.call('VADD', 'e2e:set', 'VALUES', 2, 1, 2, 'x'),
                  /Vector dimension mismatch - got 2 but set has 64/);
    check('a set can be deleted', (await client.del('e2e:set')) === 1 && (await client.exists('e2e:set')) === 0);
}

async function many(client) {
    const pipeline = client.pipeline();
    for (const q of queries)
        pipeline.call('VSIM', 'words', 'FP32', q, 'COUNT', 10).echo('between');
    pipeline.call('VDIM', 'nothing');
    const replies = await pipeline.exec();
    check('a pipeline answers in order',
          replies.length === 201 && queries.every((_, i) => replies[2 * i + 1][1] === 'between'));
    check('an error in a pipeline stays in its place', /does not exist/.test(replies[200][0].message), replies[200]);
    const found = queries.map((_, i) => replies[2 * i][1]);
    const together = await Promise.all(queries.map((q) => client.call('VSIM', 'words', 'FP32', q, 'COUNT', 10)));
    check('100 promises get what a pipeline gets', same(together, found));
    const automatic = new Redis({ port, host: '127.0.0.1', enableAutoPipelining: true });
    const echoes = await Promise.all(Array.from({ length: 2000 }, (_, i) => automatic.echo(String(i))));
    check('automatic pipelines', echoes.every((text, i) => text === String(i)));
    await automatic.quit();
}

run(async () => {
    const problems = [];
    const client = new Redis(
        { port, host: '127.0.0.1', connectionName: 'e2e', retryStrategy: null, lazyConnect: true });
    client.on('error', (e) => problems.push(e.message));
    await client.connect();
    check('the ready check passes', client.status === 'ready', client.status);
    await commands(client);
    await writes(client);
    await many(client);
    check('quit', (await client.quit()) === 'OK');
    check('no error events', problems.length === 0, problems);
});
