// recipe.js - docs/recipe/quire_cache.js in RESP2 and RESP3 against a server and a stand-in model, as recipe.sh starts
// them: QUIRE_PORT is the server, MODEL the stand-in's address.
'use strict';
const path = require('node:path');
const { createClientPool } = require('redis');
const { port, check, rejects, run } = require('./checks.js');
const { QuireCache, questionOf, eventsOf } =
    require(path.join(__dirname, '..', '..', '..', 'docs', 'recipe', 'quire_cache.js'));

const MODEL = process.env.MODEL;
const ENCODER = 'stand-in@1';
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function post(where, body) {
    const headers = { 'Content-Type': 'application/json' };
    const reply = await fetch(MODEL + where, { method: 'POST', headers, body: JSON.stringify(body) });
    if (!reply.ok) throw new Error('the model answers ' + reply.status);
    return reply;
}

const calls = async (text) => (await (await fetch(MODEL + '/calls')).json())[text] ?? 0;
const embed = async (text) => (await (await post('/v1/embeddings', { input: text })).json()).data[0].embedding;
const complete = async (request) => Buffer.from(await (await post('/v1/chat/completions', request)).arrayBuffer());

async function* streamed(request) {
    yield* eventsOf((await post('/v1/chat/completions', request)).body);
}

const request = (text, more) => ({
    model: 'm1', messages: [{ role: 'system', content: 'be kind' }, { role: 'user', content: text }], ...more,
});

function keys() {
    const one = questionOf(request('hello', { temperature: 0.5, user: 'anna' }));
    const other = questionOf(request('bye', { temperature: 0.5 }));
    check('recipe.js: who asks is no part of the key',
          one.hash === questionOf(request('hello', { user: 'bert', temperature: 0.5 })).hash);
    check('recipe.js: the last text is no part of compat', one.compat === other.compat && one.hash !== other.hash);
}

async function asking(cache, label, send) {
    const question = label + ' how can i reset my password';
    const near = label + ' please reset the password';
    const ask = (text, scope, category = 'near') => cache.ask(request(text), complete, { category, scope });
    const first = await ask(question);
    const second = await ask(question);
    check(label + ': miss, then exact without the model', first.status === 'miss' && second.status === 'exact' &&
          second.value.equals(first.value) && (await calls(question)) === 1, second);
    const hit = await ask(near);
    check(label + ': other words are served', hit.status === 'hit' && hit.value.equals(first.value) &&
          Number(hit.reply.similarity) >= 0.8 && hit.reply.text === question, hit.reply);
    const a = await ask(label + ' open invoices', { tenant: 'a' });
    const b = await ask(label + ' open invoices', { tenant: 'b' });
    check(label + ': tenants are separate', a.status === 'miss' && b.status === 'miss' && !a.value.equals(b.value));
    const wrong = label + ' fail with 500 please';
    await rejects(label + ': an error is raised', ask(wrong), /answers 500/);
    await rejects(label + ': and not replayed', ask(wrong), /answers 500/);
    check(label + ': the model was asked both times', (await calls(wrong)) === 2);
    const crowd = await Promise.all(Array.from({ length: 20 }, () => ask(label + ' slowly count the stars')));
    check(label + ': of twenty at once one asks the model', (await calls(label + ' slowly count the stars')) === 1 &&
          crowd.filter((x) => x.status === 'miss').length === 1, crowd.map((x) => x.status));
    await ask(label + ' repair the roof of the barn', undefined, 'audited');
    const audit = await ask(label + ' please repair the roof of the barn', undefined, 'audited');
    check(label + ': an audit asks the model', audit.status === 'audit' && audit.value.includes('please'), audit);
    await rejects(label + ': and has labelled the pair',
                  send(['SC.AUDIT', 'PUT', cache.name, String(audit.reply.audit), 'GOOD']), /./);
    await ask(label + ' paint the gate of the mill', undefined, 'sampled');
    const sampled = await ask(label + ' paint the tall gate of the old mill', undefined, 'sampled');
    check(label + ': a miss that is sampled asks the model', sampled.status === 'miss' && sampled.reply.audit, sampled);
    await rejects(label + ': and has labelled its pair',
                  send(['SC.AUDIT', 'PUT', cache.name, String(sampled.reply.audit), 'GOOD']), /./);
}

async function streams(cache, label) {
    const question = label + ' explain the tides of the sea';
    const ask = async (text) => {
        const answer = await cache.askStream(request(text, { stream: true }), streamed, { category: 'near' });
        const chunks = [];
        for await (const chunk of answer.chunks) chunks.push(chunk.toString());
        return { status: answer.status, chunks };
    };
    const first = await ask(question);
    const second = await ask(question);
    check(label + ': a stream is replayed with its borders', first.status === 'miss' && second.status === 'exact' &&
          first.chunks.length > 5 && JSON.stringify(first.chunks) === JSON.stringify(second.chunks), second);
    await rejects(label + ': half a stream breaks off', ask(label + ' break off the story'), /terminated/);
    await rejects(label + ': and is not kept', ask(label + ' break off the story'), /terminated/);
    check(label + ': the model was asked both times', (await calls(label + ' break off the story')) === 2);
    await oddEndings(cache, label);
}

// Every odd ending twice: it reaches its user, is not kept, and nobody waits for it.
async function oddEndings(cache, label) {
    const question = 'how does the tide turn';
    const shown = async (words, more = {}) => {
        const body = { ...request(`${label} ${words} ${question}`, { stream: true, ...more }), model: 'm:' + words };
        const answer = await cache.askStream(body, streamed, { category: 'near' });
        const chunks = [];
        for await (const chunk of answer.chunks) chunks.push(chunk.toString());
        return { status: answer.status, text: chunks.join('') };
    };
    for (const words of ['length', 'tool_calls', 'error-first', 'error-in-stream', 'error-in-stream=done', 'no-finish',
                         'no-done', 'empty', 'choices=2,length']) {
        const seen = [await shown(words), await shown(words)];
        check(`${label}: ${words} is not kept`, seen.every((x) => x.status === 'miss' && x.text.includes('data:')), seen);
    }
    await shown('content_filter');
    check(label + ': a refused stream is negative', (await shown('content_filter')).status === 'negative');
    for (const words of ['crlf', 'cr', 'split', 'comments', 'choices=2', 'reasoning']) {
        const seen = [await shown(words), await shown(words)];
        check(`${label}: ${words} is kept as it came`, seen[1].status === 'exact' && seen[0].text === seen[1].text, seen);
    }
    const wants = { stream_options: { include_usage: true } };
    const plain = await shown('pace=1');
    const counted = await shown('pace=1', wants);
    check(label + ': tokens are shown to who asks for them', counted.status === 'exact' &&
          counted.text.includes('"completion_tokens"'), counted);
    check(label + ': and to nobody else', !plain.text.includes('"choices": []') &&
          !(await shown('pace=1')).text.includes('"choices": []'), plain);
}

async function ageing(cache, label) {
    const question = label + ' what is the weather at the harbour';
    const ask = () => cache.ask(request(question), complete, { category: 'short' });
    const old = await ask();
    await sleep(400);
    const stale = await ask();
    check(label + ': stale is served', stale.status === 'stale' && stale.value.equals(old.value), stale.reply);
    for (let i = 0; i < 100 && (await calls(question)) < 2; i++) await sleep(20);
    check(label + ': and renewed behind it', (await calls(question)) >= 2);
}

run(async () => {
    keys();
    for (const RESP of [2, 3]) {
        const label = 'recipe.js RESP' + RESP;
        const name = 'recipe:js' + RESP;
        const client = createClientPool({ socket: { host: '127.0.0.1', port, reconnectStrategy: false }, RESP },
                                        { minimum: 1, maximum: 40 });
        await client.connect();
        const send = (words) => client.sendCommand(words.map(String));
        await send(['SC.CREATE', name, 'DIM', 64, 'ENCODER', ENCODER, 'SCOPE', 'tenant']);
        await send(['SC.CAT.SET', name, 'near', 'SIM', 0.8]);
        await send(['SC.CAT.SET', name, 'audited', 'SIM', 0.8, 'AUDIT', 1]);
        await send(['SC.CAT.SET', name, 'sampled', 'SIM', 0.999, 'AUDIT', 1]);
        await send(['SC.CAT.SET', name, 'short', 'SIM', 0.8, 'TTL', 300, 'STALE', 60000, 'JITTER', 0]);
        const same = (cached, fresh) => cached.equals(fresh);
        const cache = new QuireCache(client, name, { embed, encoder: ENCODER, waitMs: 5000, same });
        await asking(cache, label, send);
        await streams(cache, label);
        await ageing(cache, label);
        const other = new QuireCache(client, name, { embed, encoder: 'other@2' });
        await rejects(label + ': another encoder is an error',
                      other.ask(request('x'), complete, { category: 'near' }), /ncoder|other@2/);
        await client.close();
    }
});
