// proxy.js - an OpenAI-compatible endpoint with a semantic cache before the model's. Node 18 or later.
//
//     node proxy.js --upstream http://127.0.0.1:8000 --quire 127.0.0.1:6379 --cache answers --listen 8080
//
// The same as proxy.py: category from X-Cache-Category, tenant from Authorization, X-Cache says what the cache did.
'use strict';
const http = require('node:http');
const { createHash } = require('node:crypto');
const { parseArgs } = require('node:util');
const { createClientPool } = require('redis');
const { QuireCache, eventsOf } = require('./quire_cache.js');

const { values: options } = parseArgs({
    options: {
        upstream: { type: 'string' }, // the model's address, without /v1
        quire: { type: 'string', default: '127.0.0.1:6379' },
        cache: { type: 'string', default: 'answers' },
        encoder: { type: 'string', default: 'encoder@1' }, // model of /v1/embeddings
        listen: { type: 'string', default: '8080' }, // 0: any port, which is printed
    },
});

class UpstreamError extends Error {
    constructor(status, body) {
        super('the model answers ' + status);
        Object.assign(this, { status, body });
    }
}

function upstream(authorization) {
    const open = async (path, body) => {
        const headers = { 'Content-Type': 'application/json', ...(authorization && { Authorization: authorization }) };
        const reply = await fetch(options.upstream + path, { method: 'POST', headers, body: JSON.stringify(body) });
        if (!reply.ok) throw new UpstreamError(reply.status, Buffer.from(await reply.arrayBuffer()));
        return reply;
    };
    return {
        async embed(text) {
            const reply = await open('/v1/embeddings', { model: options.encoder, input: text });
            return (await reply.json()).data[0].embedding;
        },
        async complete(request) {
            return Buffer.from(await (await open('/v1/chat/completions', request)).arrayBuffer());
        },
        async *stream(request) {
            yield* eventsOf((await open('/v1/chat/completions', request)).body);
        },
    };
}

async function makeCache(client, dim) {
    if ((await client.sendCommand(['SC.LIST'])).includes(options.cache)) return;
    const name = options.cache;
    await client.sendCommand(['SC.CREATE', name, 'DIM', String(dim), 'ENCODER', options.encoder, 'SCOPE', 'tenant',
        'REQUIRESCOPE']);
    await client.sendCommand(['SC.CAT.SET', name, 'chat', 'RISK', '0.02', 'TTL', '3600000', 'STALE', '600000']);
    await client.sendCommand(['SC.CAT.SET', name, 'exact', 'MODE', 'exact', 'TTL', '86400000']);
}

async function sendStream(response, answer) {
    let next = await answer.chunks.next(); // an error of the model comes before the status line is sent
    response.writeHead(200, { 'Content-Type': 'text/event-stream', 'X-Cache': answer.status });
    for (; !next.done; next = await answer.chunks.next()) response.write(next.value);
    response.end();
}

async function handle(client, incoming, response) {
    const parts = [];
    for await (const part of incoming) parts.push(part);
    const request = JSON.parse(Buffer.concat(parts));
    const authorization = incoming.headers.authorization;
    const model = upstream(authorization);
    const cache = new QuireCache(client, options.cache, { embed: model.embed, encoder: options.encoder });
    const tenant = createHash('sha256').update(authorization ?? '').digest('hex').slice(0, 16);
    const how = { category: incoming.headers['x-cache-category'] ?? 'chat', scope: { tenant } };
    if (request.stream) {
        await sendStream(response, await cache.askStream(request, model.stream, how));
        return;
    }
    const answer = await cache.ask(request, model.complete, how);
    response.writeHead(200, { 'Content-Type': 'application/json', 'X-Cache': answer.status });
    response.end(answer.value);
}

function sendError(response, e) {
    if (response.headersSent) {
        response.destroy(); // half an answer: the client sees that it broke off
        return;
    }
    const body = e.body ?? JSON.stringify({ error: { message: e.message } });
    response.writeHead(e.status ?? 502, { 'Content-Type': 'application/json', 'X-Cache': 'error' });
    response.end(body);
}

async function main() {
    const [host, port] = options.quire.split(/:(?=\d+$)/);
    const client = createClientPool({ socket: { host, port: Number(port) }, disableOfflineQueue: true },
        { minimum: 1, maximum: 100 });
    client.on('error', () => {}); // calls tell of it, and go to the model
    await client.connect().catch((e) => { throw new Error(`no cache at ${options.quire}: ${e.message || e.code}`); });
    const vector = await upstream().embed('how long is a vector').catch((e) => {
        throw new Error(`no vector from ${options.upstream}/v1/embeddings: ${e.cause?.message || e.message}`);
    });
    await makeCache(client, vector.length);
    const server = http.createServer((incoming, response) =>
        handle(client, incoming, response).catch((e) => sendError(response, e)));
    server.listen(Number(options.listen), '127.0.0.1', () => console.log(server.address().port));
}

main().catch((e) => {
    console.error('proxy.js: ' + e.message);
    process.exit(1);
});
