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

// What does not decide the answer. All else does, known or not: an unknown field makes a miss, never a wrong answer.
const IGNORED = new Set(['stream_options', 'user', 'metadata', 'store', 'safety_identifier', 'prompt_cache_key',
    'prompt_cache_retention', 'service_tier', 'request_id', 'session_id', 'priority', 'kv_transfer_params',
    'cache_prompt', 'id_slot', 'timings_per_token']);
const ABSENT = { stream: false, n: 1 }; // values that say the same as none
const SERVED = ['hit', 'exact', 'stale'];
const BUFFERS = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } };

// Thrown by a callModel for what only it knows: an answer for the user, `value` or `chunks`, but none to keep. With
// refused the question gets `negative` for a while, so that nobody waits for an answer that will not be kept.
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
    const canonical = {};
    for (const [name, value] of Object.entries(request)) {
        if (value != null && !IGNORED.has(name) && ABSENT[name] !== value) canonical[name] = value;
    }
    const { max_completion_tokens: most, ...rest } = canonical;
    const all = most === undefined ? rest : { ...rest, max_tokens: most };
    const messages = (all.messages ?? [{}]).map(({ id, ...message }) => message); // eslint-disable-line no-unused-vars
    const { content, ...last } = messages[messages.length - 1];
    const text = last.role === 'user' ? textOf(content) : null;
    const before = text === null ? messages : [...messages.slice(0, -1), last];
    return { hash: digest({ ...all, messages }), compat: digest({ ...all, messages: before }), text };
}

// A text, or a list of nothing but texts, as one; null: there is something else in it.
function textOf(content) {
    if (typeof content === 'string') return content;
    if (!Array.isArray(content) || !content.every((part) => part?.type === 'text')) return null;
    return content.map((part) => part.text ?? '').join('');
}

// Whether an answer is to be kept: all of it is there, every choice ends with `stop`, something was said, and there is
// no error in it, which may come in a stream of status 200.
class Judge {
    constructor() {
        Object.assign(this, { ends: {}, broken: false, done: false, says: false, usage: undefined });
    }

    take(text) {
        let value;
        try {
            value = JSON.parse(text);
        } catch {
            value = null;
        }
        if (!value || value.error || !Array.isArray(value.choices)) {
            this.broken = true;
            return value;
        }
        this.usage = value.usage ?? this.usage;
        for (const { index = 0, message, delta, finish_reason: end } of value.choices) {
            const said = message ?? delta ?? {};
            this.ends[index] = end ?? this.ends[index];
            this.says ||= Boolean(said.content);
            this.broken ||= Boolean(said.tool_calls?.length || said.refusal);
        }
        return value;
    }

    body(value) {
        this.take(value);
        this.done = true;
        return this;
    }

    // Looks at an event of a stream. False: it only counts tokens, which not everybody has asked for.
    event(event) {
        for (const line of event.toString().split(/\r\n|\r|\n/)) {
            const text = line.startsWith('data:') ? line.slice(5).trim() : '';
            if (text === '[DONE]') {
                this.done = true;
            } else if (text) {
                const value = this.take(text);
                if (value?.choices?.length === 0 && value.usage) return false;
            }
        }
        return true;
    }

    get keeps() {
        const ends = Object.values(this.ends);
        return this.done && this.says && !this.broken && ends.length > 0 && ends.every((end) => end === 'stop');
    }

    get refused() {
        return Object.values(this.ends).includes('content_filter');
    }
}

// The events of a stream of bytes, each as it came, with the empty line that ends it.
async function* eventsOf(body) {
    let rest = Buffer.alloc(0);
    for await (const bytes of body) {
        rest = Buffer.concat([rest, bytes]);
        for (let found; (found = /\r\n\r\n|\n\n|\r\r/.exec(rest.toString('latin1'))); ) {
            const end = found.index + found[0].length;
            yield rest.subarray(0, end);
            rest = rest.subarray(end);
        }
    }
    if (rest.length) yield rest;
}

const words = (value) => (Buffer.isBuffer(value) ? value.toString() : value);

const RAW = ['value', 'chunks', 'entry_value'];

// A map of RESP3, or RESP2's flat array, as an object. Values stay buffers; names, and what is text, become strings.
function fields(reply) {
    const flat = Array.isArray(reply) ? reply : Object.entries(reply).flat();
    const out = {};
    for (let i = 0; i < flat.length; i += 2) {
        const name = words(flat[i]);
        out[name] = RAW.includes(name) ? flat[i + 1] : words(flat[i + 1]);
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
        if (!reply.audit || !this.same) return;
        let cached;
        if (reply.status === 'audit') {
            cached = reply.value ?? Buffer.concat(reply.chunks);
        } else { // a miss that is sampled: what its nearest entry would have answered
            const pair = await this.tell('SC.AUDIT', 'GET', this.name, reply.audit);
            cached = pair && fields(pair).entry_value;
        }
        if (!cached) return; // labelled meanwhile, or the entry has gone
        await this.tell('SC.AUDIT', 'PUT', this.name, reply.audit, this.same(cached, fresh) ? 'GOOD' : 'BAD');
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
        await this.judged(found, request, new Judge().body(value), value, ['VALUE', value], tags);
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

    // The answer is there and its user has it: it is kept, or those who wait are told that it is not.
    async judged(found, request, judge, whole, stored, tags) {
        if (!judge.keeps) {
            await this.giveUp(found, judge.refused);
            return;
        }
        await this.label(found.reply, whole);
        await this.put(found, request, stored, { tags, usage: judge.usage });
    }

    async *stream(found, request, callModel, tags) {
        const chunks = [];
        const judge = new Judge();
        const asked = request.stream_options ?? {};
        let ended = false;
        try {
            // tokens are always asked for: an answer that is kept has them for whoever wants them
            for await (const chunk of callModel({ ...request, stream_options: { ...asked, include_usage: true } })) {
                chunks.push(Buffer.from(chunk));
                if (judge.event(chunk) || asked.include_usage) yield chunks[chunks.length - 1];
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
        const stored = ['CHUNKS', chunks.length, ...chunks];
        await this.judged(found, request, judge, Buffer.concat(chunks), stored, tags);
    }

    // The answer's chunks are an async iterator: as they come from the model, or as they once came.
    async askStream(request, callModel, { category, scope, tags = [] }) {
        const found = await this.lookUp(request, category, scope);
        const { reply } = found;
        if (!SERVED.includes(reply.status)) {
            return { status: reply.status, chunks: this.stream(found, request, callModel, tags), reply };
        }
        if (reply.lease) drain(this.stream(found, request, callModel, tags)).catch((e) => this.warn(e.message));
        const wanted = (chunk) => new Judge().event(chunk) || request.stream_options?.include_usage;
        return { status: reply.status, chunks: replay((reply.chunks ?? [reply.value]).filter(wanted)), reply };
    }
}

async function drain(chunks) {
    for await (const _ of chunks); // eslint-disable-line no-unused-vars
}

async function* replay(chunks) {
    yield* chunks;
}

module.exports = { QuireCache, Uncacheable, questionOf, eventsOf };
