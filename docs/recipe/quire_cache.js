// quire_cache.js - a semantic cache in front of an OpenAI-compatible model, over node-redis.
//
//     const cache = new QuireCache(client, 'answers', { embed, encoder: 'my-encoder@1' });
//     const answer = await cache.ask(request, callModel, { category: 'chat', scope: { tenant: 'acme' } });
//     console.log(answer.status, answer.value.toString());
//
// `request` is the body of /v1/chat/completions, callModel(request) resolves to the model's body, embed(text) to an
// array of numbers. For streams: askStream, whose callModel is an async generator of events. What goes into which key,
// and why, is in recipe-llm.md. A call that waits holds its connection: the client should be a pool (createClientPool).
'use strict';
const { createHash } = require('node:crypto');
const { ErrorReply, RESP_TYPES } = require('redis');

// What decides the answer. What is not here (user, metadata, store, stream_options, ...) does not.
const PARAMETERS = ['model', 'messages', 'tools', 'tool_choice', 'parallel_tool_calls', 'response_format',
    'temperature', 'top_p', 'n', 'max_tokens', 'max_completion_tokens', 'stop', 'seed', 'presence_penalty',
    'frequency_penalty', 'logit_bias', 'logprobs', 'top_logprobs', 'reasoning_effort', 'verbosity'];
const SERVED = ['hit', 'exact', 'stale'];
const BUFFERS = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } };

// Thrown by a callModel: an answer for the user, `value` or `chunks`, but none to keep. With refused the question gets
// `negative` for a while, so that nobody waits for an answer that will not be kept.
class Uncacheable extends Error {
    constructor({ value, chunks, refused = false }) {
        super('an answer that is not kept');
        Object.assign(this, { value, chunks, refused });
    }
}

// Names in order at every depth, so that the order in which a program built its request does not matter.
function sorted(value) {
    if (Array.isArray(value)) return value.map(sorted);
    if (value === null || typeof value !== 'object') return value;
    return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])]));
}

const digest = (value) => createHash('sha256').update(JSON.stringify(sorted(value))).digest('hex');

// The keys of a request: of all that decides the answer, of all but the last text, and that text (null: the last
// message is no plain text of a user; only the same request has this answer).
function questionOf(request) {
    const canonical = { stream: Boolean(request.stream) };
    for (const name of PARAMETERS) if (request[name] != null) canonical[name] = request[name];
    const messages = canonical.messages ?? [{}];
    const { content, ...rest } = messages[messages.length - 1];
    const text = rest.role === 'user' && typeof content === 'string' ? content : null;
    const before = [...messages.slice(0, -1), text === null ? { ...rest, content } : rest];
    return { hash: digest(canonical), compat: digest({ ...canonical, messages: before }), text };
}

const words = (value) => (Buffer.isBuffer(value) ? value.toString() : value);

// A map of RESP3, or RESP2's flat array, as an object. Values stay buffers; names, and what is text, become strings.
function fields(reply) {
    const flat = Array.isArray(reply) ? reply : Object.entries(reply).flat();
    const out = {};
    for (let i = 0; i < flat.length; i += 2) {
        const name = words(flat[i]);
        out[name] = name === 'value' || name === 'chunks' ? flat[i + 1] : words(flat[i + 1]);
    }
    return out;
}

// No connection, or one that was lost, is no error: the cache is a help, not a part that all depends on. What the
// server refuses is one: an encoder that is not the cache's would otherwise be a cache that never answers.
const isDown = (e) => !(e instanceof ErrorReply);

class QuireCache {
    // same(cached, fresh): whether two answers say the same, asked where the cache wants a label. warn: gets what went
    // wrong beside a request that was answered all the same.
    constructor(client, name, { embed, encoder, waitMs = 30000, same, warn = console.warn }) {
        Object.assign(this, { client, name, embed, encoder, waitMs, same, warn });
    }

    send(...command) {
        return this.client.sendCommand(command.map((w) => (Buffer.isBuffer(w) ? w : String(w))), BUFFERS);
    }

    // After the model has answered: what goes wrong here must not take the answer from the user. An audit that a judge
    // in the background has labelled meanwhile is refused, too.
    async tell(...command) {
        try {
            return await this.send(...command);
        } catch (e) {
            this.warn(`${command[0]}: ${e.message}`);
            return null;
        }
    }

    // Where the cache or the encoder is gone, the model answers.
    async lookUp(request, category, scope) {
        const question = questionOf(request);
        const named = ['CAT', category, 'HASH', question.hash, 'COMPAT', question.compat];
        if (scope) named.push('SCOPE', ...Object.entries(scope).flat());
        if (question.text !== null) named.push('TEXT', question.text);
        const keys = [...named];
        try {
            if (question.text !== null) {
                keys.push('VEC', Buffer.from(new Float32Array(await this.embed(question.text)).buffer));
                if (this.encoder) keys.push('ENCODER', this.encoder);
            }
            const reply = fields(await this.send('SC.GET', this.name, ...keys, 'WAIT', this.waitMs));
            return { named, keys, reply };
        } catch (e) {
            if (!isDown(e)) throw e;
            this.warn(`no cache: ${e.message}`);
            return { named, keys, reply: { status: 'down' } };
        }
    }

    async label(reply, fresh) {
        if (reply.status !== 'audit' || !this.same) return;
        const verdict = this.same(reply.value ?? Buffer.concat(reply.chunks), fresh) ? 'GOOD' : 'BAD';
        await this.tell('SC.AUDIT', 'PUT', this.name, reply.audit, verdict);
    }

    async put({ keys, reply }, request, stored, { tags = [], usage } = {}) {
        if (!reply.lease) return;
        const words = [...keys, 'LEASE', reply.lease, 'MODEL', request.model ?? '', ...stored];
        for (const tag of tags) words.push('TAG', tag);
        if (usage) words.push('TOKENS', usage.prompt_tokens ?? 0, usage.completion_tokens ?? 0);
        if ((await this.tell('SC.PUT', this.name, ...words)) === null) await this.giveUp({ reply }, false);
    }

    async giveUp({ named, reply }, refused) {
        if (refused) {
            await this.tell('SC.NEG', this.name, ...named, ...(reply.lease ? ['LEASE', reply.lease] : []));
        } else if (reply.lease) {
            await this.tell('SC.FAIL', this.name, reply.lease);
        }
    }

    async model(found, request, callModel, tags) {
        let value;
        try {
            value = Buffer.from(await callModel(request));
        } catch (e) {
            await this.giveUp(found, e.refused === true); // the next one that waits asks the model instead
            if (e instanceof Uncacheable) return e.value;
            throw e;
        }
        await this.label(found.reply, value);
        await this.put(found, request, ['VALUE', value], { tags, usage: usageOf(value) });
        return value;
    }

    async ask(request, callModel, { category, scope, tags = [] }) {
        const found = await this.lookUp(request, category, scope);
        const { reply } = found;
        if (!SERVED.includes(reply.status)) {
            return { status: reply.status, value: await this.model(found, request, callModel, tags), reply };
        }
        // stale, and it is up to us to renew it: the user need not wait. A failure is told to the server
        if (reply.lease) this.model(found, request, callModel, tags).catch((e) => this.warn(e.message));
        return { status: reply.status, value: reply.value, reply };
    }

    async *stream(found, request, callModel, tags) {
        const chunks = [];
        let ended = false;
        try {
            for await (const chunk of callModel(request)) {
                chunks.push(Buffer.from(chunk));
                yield chunks[chunks.length - 1];
            }
            ended = true;
        } catch (e) {
            if (!(e instanceof Uncacheable)) throw e;
            yield* e.chunks ?? [];
        } finally {
            // also where the user has gone in the middle: half an answer is none
            if (!ended) await this.giveUp(found, false);
        }
        if (!ended) return;
        await this.label(found.reply, Buffer.concat(chunks));
        await this.put(found, request, ['CHUNKS', chunks.length, ...chunks], { tags });
    }

    // The answer's chunks are an async iterator: as they come from the model, or as they once came.
    async askStream(request, callModel, { category, scope, tags = [] }) {
        const found = await this.lookUp(request, category, scope);
        const { reply } = found;
        if (!SERVED.includes(reply.status)) {
            return { status: reply.status, chunks: this.stream(found, request, callModel, tags), reply };
        }
        if (reply.lease) drain(this.stream(found, request, callModel, tags)).catch((e) => this.warn(e.message));
        return { status: reply.status, chunks: replay(reply.chunks ?? [reply.value]), reply };
    }
}

async function drain(chunks) {
    for await (const _ of chunks); // eslint-disable-line no-unused-vars
}

async function* replay(chunks) {
    yield* chunks;
}

function usageOf(body) {
    try {
        return JSON.parse(body).usage;
    } catch {
        return undefined;
    }
}

module.exports = { QuireCache, Uncacheable, questionOf };
