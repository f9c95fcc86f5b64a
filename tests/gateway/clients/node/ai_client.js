// ai_client.js - Vercel's ai with @ai-sdk/openai (chat and the default, /v1/responses) and @ai-sdk/openai-compatible: text, streams
// with usage, tools, objects, embeddings, errors, retries, aborts.
'use strict';
const { generateText, streamText, generateObject, embed, embedMany, tool, stepCountIs, APICallError } = require('ai');
const { createOpenAI } = require('@ai-sdk/openai');
const { createOpenAICompatible } = require('@ai-sdk/openai-compatible');
const { z } = require('zod');
const { base, get, calls, check, question, last, watched, twice, fails, leaves, run } = require('./client_checks.js');

const openai = createOpenAI({ apiKey: 'key-of-ai', baseURL: base, fetch: watched });
const compatible = createOpenAICompatible({ name: 'stand-in', apiKey: 'key-of-ai', baseURL: base, fetch: watched,
                                            includeUsage: true });
const never = { maxRetries: 0 };
const unstored = { providerOptions: { openai: { store: false } } };
const said = ({ text, finishReason, usage }) => ({ text, finishReason, usage });

async function text() {
    for (const [name, model, more] of [['chat', openai.chat('stand-in'), {}], ['responses', openai('stand-in'), unstored],
                                       ['compatible', compatible('stand-in'), {}]]) {
        const prompt = question(name + ' says');
        await twice(`generateText, ${name}`, prompt, async () => said(await generateText({ model, prompt, ...more, ...never })),
            (r) => r.text === 'answer 1 to: ' + prompt && r.finishReason === 'stop' && r.usage.outputTokens === 7);
        const streamed = question(name + ' streams');
        await twice(`streamText, ${name}`, streamed, async () => {
            const result = streamText({ model, prompt: streamed, ...more, ...never });
            const pieces = [];
            for await (const piece of result.textStream) pieces.push(piece);
            return { pieces, finishReason: await result.finishReason, usage: await result.usage };
        }, (r) => r.pieces.join('').trim() === 'answer 1 to: ' + streamed && r.pieces.length > 3 &&
            r.finishReason === 'stop' && r.usage.outputTokens === 7);
    }
}

async function tools() {
    for (const [name, model, more] of [['chat', openai.chat('stand-in'), {}], ['responses', openai('stand-in'), unstored]]) {
        const prompt = question(name + ': call the tool');
        const asked = [];
        const weather = tool({ description: 'of a city', inputSchema: z.object({ city: z.string() }),
                               execute: async ({ city }) => { asked.push(city); return question(name + ' rain'); } });
        const result = await generateText({ model, prompt, tools: { weather }, stopWhen: stepCountIs(3), ...more, ...never });
        check(`a tool is called and its result answered, ${name}`, asked[0] === 'stand-in' && result.steps.length === 2 &&
            result.text.includes(question(name + ' rain')), [asked, result.text, result.steps.length]);
        const streamed = streamText({ model, prompt: question(name + ', streamed: call the tool'), tools: { weather },
                                      stopWhen: stepCountIs(3), ...more, ...never });
        let said = '';
        for await (const piece of streamed.textStream) said += piece;
        const steps = await streamed.steps;
        check(`in a stream, ${name}`, asked.length === 2 && asked[1] === 'stand-in' && steps.length === 2 &&
            steps[0].finishReason === 'tool-calls' && said.includes(question(name + ' rain')), [asked, said, steps.length]);
    }
}

async function objects() {
    const schema = z.object({ name: z.string(), age: z.number().int() });
    for (const [name, model, more] of [['chat', openai.chat('stand-in'), {}], ['responses', openai('stand-in'), unstored]]) {
        const prompt = question(name + ': an object');
        await twice(`generateObject, ${name}`, prompt,
            async () => ({ object: (await generateObject({ model, schema, prompt, ...more, ...never })).object }),
            (r) => r.object.name === 'stand-in' && r.object.age === 7);
    }
}

async function embeddings() {
    const value = question('a value');
    const model = openai.embedding('stand-in');
    await twice('embed', 'embed: ' + value, async () => ({ e: (await embed({ model, value, ...never })).embedding }),
        (r) => r.e.length === 64);
    const values = [question('the first'), question('the second')];
    await twice('embedMany', 'embed: ' + values[1],
        async () => ({ e: (await embedMany({ model, values, ...never })).embeddings }), (r) => r.e.length === 2);
}

async function errors() {
    for (const status of [400, 429, 500]) {
        await fails(`${status}`, generateText({ model: openai.chat('stand-in'), prompt: question('fail with ' + status), ...never }),
            (e) => APICallError.isInstance(e) && e.statusCode === status && /as asked/.test(e.message) &&
                e.isRetryable === (status !== 400));
    }
    const seen = [];
    const result = streamText({ model: openai.chat('stand-in:error-in-stream'), prompt: question('an error'), ...never,
                                onError: ({ error }) => seen.push(error) });
    for await (const piece of result.textStream) void piece;
    check('an error in a stream is told', seen.length === 1, seen);
}

async function retries() {
    const prompt = question('fails twice');
    const began = last.urls.length;
    const result = await generateText({ model: openai.chat('stand-in:status=503,fails=2,retry-after-ms=20'), prompt, maxRetries: 2 });
    check('retries are the client\'s', result.text.includes(prompt) && last.urls.length - began === 3 &&
        (await calls(prompt)) === 3, [result.text, last.urls.length - began]);
}

async function abort() {
    const before = (await get('/state')).gone;
    const controller = new AbortController();
    const result = streamText({ model: openai.chat('stand-in:events=2000,pace=10'), prompt: question('a long story'),
                                abortSignal: controller.signal, ...never, onError: () => {} });
    let n = 0;
    try {
        for await (const piece of result.textStream) if (piece && ++n === 5) controller.abort();
    } catch (e) {
        check('an abort is an abort', e.name === 'AbortError', e);
    }
    await leaves('an abort reaches the model', before);
}

run(text, tools, objects, embeddings, errors, retries, abort);
