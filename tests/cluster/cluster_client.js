// cluster_client.js ioredis|node_redis PORT... - commands from standard input, one JSON array of words in
// base64 a line, through that client's cluster of these nodes; a line of JSON for each reply: {"b": base64} a text,
// {"e": message} an error, numbers, null and arrays as such. A line is [first key or "", read-only, word, ...]. node-redis
// has to be told the key; ioredis does not know that of these commands, asks any node, and is sent on. Started by clients.py.
'use strict';
const readline = require('node:readline');

const [client, ...ports] = process.argv.slice(2);

function plain(reply) {
    if (Buffer.isBuffer(reply) || typeof reply === 'string')
        return { b: Buffer.from(reply).toString('base64') };
    if (reply instanceof Error)
        return { e: reply.message };
    return Array.isArray(reply) ? reply.map(plain) : reply;
}

async function withIoredis() {
    const Redis = require('ioredis');
    const cluster = new Redis.Cluster(ports.map((port) => ({ host: '127.0.0.1', port: Number(port) })));
    return async (key, readonly, words) => {
        const name = String(words[0]).toUpperCase();
        if (name !== 'MULTI')
            return cluster.callBuffer(name, ...words.slice(1));
        // MULTI SET key value VADD ...: words of 4 and the rest, in one transaction
        const replies = await cluster.multi().set(words[2], words[3]).call(...words.slice(4).map(String)).exec();
        return replies.map(([error, reply]) => error ?? reply);
    };
}

async function withNodeRedis() {
    const { createCluster, RESP_TYPES } = require('redis');
    const cluster = createCluster({
        rootNodes: ports.map((port) => ({ url: 'redis://127.0.0.1:' + port })), useReplicas: true
    });
    cluster.on('error', () => {});
    await cluster.connect();
    const typeMapping = { [RESP_TYPES.BLOB_STRING]: Buffer, [RESP_TYPES.SIMPLE_STRING]: Buffer };
    return async (key, readonly, words) => {
        if (String(words[0]) === 'MULTI')
            return cluster.multi().addCommand(key, false, words.slice(1, 4)).addCommand(key, false, words.slice(4)).exec();
        return cluster.sendCommand(key || undefined, readonly, words, { typeMapping });
    };
}

async function main() {
    const ask = await (client === 'ioredis' ? withIoredis() : withNodeRedis());
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const [key, readonly, ...words] = JSON.parse(line);
        let reply;
        try {
            reply = await ask(key, readonly, words.map((word) => Buffer.from(word, 'base64')));
        } catch (e) {
            reply = e;
        }
        process.stdout.write(JSON.stringify(plain(reply)) + '\n');
    }
    process.exit(0);
}

main().catch((e) => {
    process.stderr.write(String(e.stack) + '\n');
    process.exit(1);
});
