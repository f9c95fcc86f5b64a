// node_redis.js - the server through node-redis, in RESP2 and RESP3: its methods for vector sets, and sendCommand.
'use strict';
const { createClient } = require('redis');
const { port, check, rejects, readVectors, numbersOf, same, run } = require('./checks.js');

const queries = readVectors('base.query.fbin');

async function methods(client, label) {
    check(label + ': vCard, vDim', (await client.vCard('words')) === 4000 && (await client.vDim('words')) === 64);
    const info = await client.vInfo('words');
    check(label + ': vInfo', info['vector-dim'] === 64 && info.size === 4000, info);
    const emb = await client.vEmb('words', 'apple-0');
    check(label + ': vEmb is numbers', emb.length === 64 && emb.every((x) => typeof x === 'number'), emb);
    const raw = await client.vEmbRaw('words', 'apple-0');
    check(label + ': vEmbRaw', raw.quantization === 'int8' && Math.abs(raw.l2Norm - 1) < 1e-6 && raw.quantizationRange > 0, raw);
    const byElement = await client.vSim('words', 'apple-0', { COUNT: 5 });
    check(label + ': vSim by element', byElement.length === 5 && byElement[0] === 'apple-0', byElement);
    const scores = await client.vSimWithScores('words', 'apple-0', { COUNT: 5, EF: 100 });
    const values = Object.values(scores);
    check(label + ': vSimWithScores',
          same(Object.keys(scores), byElement) && values[0] > 0.999 && values[4] < values[1], scores);
    const byValues = await client.vSim('words', numbersOf(queries[0]), { COUNT: 10, TRUTH: true });
    check(label + ': vSim by numbers', byValues.length === 10 && new Set(byValues).size === 10, byValues);
    const links = await client.vLinks('words', 'apple-0');
    check(label + ': vLinks', links.length === 1 && links[0].length > 0, links);
    const scored = await client.vLinksWithScores('words', 'apple-0');
    check(label + ': vLinksWithScores',
          same(Object.keys(scored[0]).sort(), [...links[0]].sort()) &&
              Object.values(scored[0]).every((s) => s > 0 && s <= 1), scored);
    const random = await client.vRandMember('words', 20);
    check(label + ': vRandMember', new Set(random).size === 20, random);
    return byValues;
}

async function writes(client, label) {
    const vectors = readVectors('base.fbin').slice(0, 300).map(numbersOf);
    const added = await Promise.all(vectors.map((v, i) => client.vAdd('e2e:set', v, 'e' + i)));
    check(label + ': 300 vAdd', added.every((x) => x === true), added);
    check(label + ': vAdd of an element that is there', (await client.vAdd('e2e:set', vectors[1], 'e0')) === false);
    const options = { QUANT: 'NOQUANT', EF: 100, M: 8, CAS: true, SETATTR: { n: 1 } };
    check(label + ': vAdd with options', (await client.vAdd('e2e:other', vectors[0].slice(0, 8), 'x', options)) === true);
    const info = await client.vInfo('e2e:other');
    check(label + ': vInfo of it', info['quant-type'] === 'f32' && info['hnsw-m'] === 8 && info.size === 1, info);
    check(label + ': vGetAttr', same(await client.vGetAttr('e2e:other', 'x'), { n: 1 }));
    check(label + ': vSetAttr', (await client.vSetAttr('e2e:set', 'e5', { a: [1, 'ß'] })) === true &&
          same(await client.vGetAttr('e2e:set', 'e5'), { a: [1, 'ß'] }));
    check(label + ': vGetAttr of none', (await client.vGetAttr('e2e:set', 'e6')) === null);
    const reduced = await client.vAdd('e2e:small', vectors[0], 'x', { REDUCE: 16 });
    check(label + ': vAdd with REDUCE', reduced === true && (await client.vDim('e2e:small')) === 16);
    const near = await client.vSimWithScores('e2e:set', vectors[7], { COUNT: 4 });
    check(label + ': vSimWithScores finds what was added', Object.keys(near)[0] === 'e7' && near.e7 > 0.999, near);
    check(label + ': vCard, vDim, vRandMember',
          (await client.vCard('e2e:set')) === 300 && (await client.vDim('e2e:set')) === 64 &&
              (await client.vRandMember('e2e:set')).startsWith('e'));
    check(label + ': vEmb, vLinks', (await client.vEmb('e2e:set', 'e9')).length === 64 &&
          (await client.vLinks('e2e:set', 'e9')).flat().length > 0);
    check(label + ': vRem', (await client.vRem('e2e:set', 'e7')) === true &&
          (await client.vRem('e2e:set', 'e7')) === false && (await client.vCard('e2e:set')) === 299);
    await client.sendCommand(['VSEAL', 'e2e:set']);
    check(label + ': the same after VSEAL', (await client.vCard('e2e:set')) === 299 &&
          same(await client.vGetAttr('e2e:set', 'e5'), { a: [1, 'ß'] }) &&
          (await client.vSim('e2e:set', vectors[8], { COUNT: 1 }))[0] === 'e8');
    await rejects(label + ': vAdd of another dimension', client.vAdd('e2e:set', [1, 2], 'x'),
                  /Vector dimension mismatch - got 2 but set has 64/);
    check(label + ': del of sets', (await client.del(['e2e:set', 'e2e:other', 'e2e:small'])) === 3);
}

async function generic(client, label) {
    check(label + ': ping, echo', (await client.ping()) === 'PONG' && (await client.echo('ß\0€')) === 'ß\0€');
    await client.clientSetName('e2e');
    check(label + ': client name', (await client.clientGetName()) === 'e2e');
    const config = await client.configGet('port');
    check(label + ': configGet', config.port === String(port), config);
    check(label + ': info', /redis_version:\d+\.\d+/.test(await client.info()));
    check(label + ': commandCount', (await client.commandCount()) > 20);
    check(label + ': dbSize, exists, type',
          (await client.dbSize()) === 1 && (await client.exists(['words', 'no'])) === 1 &&
              (await client.type('words')) === 'vectorset');
    await rejects(label + ': an error rejects its promise', client.vSim('words', [1, 2]), /dimension mismatch/);
    await rejects(label + ': an unknown command', client.sendCommand(['NOSUCHCOMMAND']), /unknown command/);
    check(label + ': set and get', (await client.set('e2e', 'b')) === 'OK' && (await client.get('e2e')) === 'b');
    check(label + ': hSet and hGetAll', (await client.hSet('e2e:h', { a: '1', b: '2' })) === 2 &&
          (await client.hGetAll('e2e:h')).b === '2');
    check(label + ': del', (await client.del(['e2e', 'e2e:h'])) === 2);
    const member = await client.sendCommand(['VISMEMBER', 'words', 'apple-0']);
    check(label + ': sendCommand VISMEMBER', member === (label === 'RESP3' ? true : 1), member);
}

async function search(client, label, expected) {
    const blob = await client.sendCommand(['VSIM', 'words', 'FP32', queries[0], 'COUNT', '10', 'TRUTH']);
    check(label + ': sendCommand VSIM with a binary vector', same(blob, expected), blob);
    const ask = (on, q) => on.sendCommand(['VSIM', 'words', 'FP32', q, 'COUNT', '10']);
    const alone = [];
    for (const q of queries)
        alone.push(await ask(client, q));
    const together = await Promise.all(queries.map((q) => ask(client, q)));
    check(label + ': 100 promises get what one gets', queries.length === 100 && same(together, alone));
    const clients = await Promise.all(Array.from({ length: 10 }, () => client.duplicate().connect()));
    const spread = await Promise.all(queries.map((q, i) => ask(clients[i % 10], q)));
    check(label + ': 100 promises over 10 connections', same(spread, alone));
    await Promise.all(clients.map((c) => c.close()));
}

run(async () => {
    for (const RESP of [2, 3]) {
        const label = 'RESP' + RESP;
        const problems = [];
        const client = createClient({ socket: { host: '127.0.0.1', port, reconnectStrategy: false }, RESP });
        client.on('error', (e) => problems.push(e.message));
        await client.connect();
        await generic(client, label);
        await search(client, label, await methods(client, label));
        await writes(client, label);
        await client.close();
        check(label + ': no error events', problems.length === 0, problems);
    }
});
