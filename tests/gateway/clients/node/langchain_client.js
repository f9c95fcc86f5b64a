// langchain_client.js - @langchain/openai: invoke, stream, batch, tools, structured output, embeddings, ids of messages, errors,
// aborts.
'use strict';
const { ChatOpenAI, OpenAIEmbeddings } = require('@langchain/openai');
const { HumanMessage, SystemMessage, ToolMessage, concat } = (() => {
    const messages = require('@langchain/core/messages');
    const { concat } = require('@langchain/core/utils/stream');
    return { ...messages, concat };
})();
const { tool } = require('@langchain/core/tools');
const { z } = require('zod');
const { base, cached, check, get, question, watched, twice, fails, leaves, run } = require('./client_checks.js');

const configuration = { baseURL: base, fetch: watched };
const chat = (more = {}) => new ChatOpenAI({ model: 'stand-in', apiKey: 'key-of-langchain', maxRetries: 0, configuration, ...more });
const shown = (m) => ({ content: m.content, calls: m.tool_calls?.length, usage: m.usage_metadata,
                        finish: m.response_metadata.finish_reason });

async function asking() {
    const text = question('how are you');
    const ids = [];
    await twice('invoke', text, async () => {
        const answer = await chat().invoke([new SystemMessage('be kind'), new HumanMessage(text)]);
        ids.push(answer.id);
        return shown(answer);
    }, (r) => r.content === 'answer 1 to: ' + text && r.usage.output_tokens === 7);
    // a graph of LangGraph replaces a message that has the id of another
    if (cached) check('the ids of an answer that is given twice differ', new Set(ids).size === 2 && ids.every(Boolean), ids);
    const streamed = question('tell me a story');
    await twice('stream', streamed, async () => {
        let whole;
        for await (const chunk of await chat().stream(streamed)) whole = whole ? concat(whole, chunk) : chunk;
        return shown(whole);
    }, (r) => r.content.trim() === 'answer 1 to: ' + streamed && r.usage.output_tokens === 7);
    const both = [question('one of two'), question('two of two')];
    const answers = await chat().batch(both);
    check('batch', answers.every((a, i) => a.content.endsWith(both[i])), answers.map((a) => a.content));
}

async function tools() {
    const weather = tool(async () => 'rain', { name: 'weather', description: 'of a city',
                                               schema: z.object({ city: z.string() }) });
    const text = question('call the tool');
    const bound = chat().bindTools([weather]);
    const first = await bound.invoke(text);
    check('a tool is called', first.tool_calls[0].name === 'weather' && first.tool_calls[0].args.city === 'stand-in', first);
    const streamed = question('call the tool in a stream');
    let whole;
    for await (const chunk of await bound.stream(streamed)) whole = whole ? concat(whole, chunk) : chunk;
    check('in a stream', whole.tool_calls.length === 1 && whole.tool_calls[0].name === 'weather' &&
        whole.tool_calls[0].args.city === 'stand-in' && whole.response_metadata.finish_reason === 'tool_calls', whole);
    const result = question('it rains');
    await twice('and its result answered', result, async () => shown(await bound.invoke([
        new HumanMessage(text), first, new ToolMessage({ tool_call_id: first.tool_calls[0].id, content: result })])),
        (r) => r.content.includes(result) && r.calls === 0);
    const person = chat().withStructuredOutput(z.object({ name: z.string() }), { method: 'jsonSchema' });
    const who = question('who is it');
    await twice('withStructuredOutput', who, async () => person.invoke(who), (r) => r.name === 'stand-in');
}

async function embeddings() {
    const model = new OpenAIEmbeddings({ model: 'stand-in', apiKey: 'key-of-langchain', maxRetries: 0, configuration });
    const texts = [question('a document'), question('another one')];
    await twice('embedDocuments', 'embed: ' + texts[0], async () => ({ all: await model.embedDocuments(texts) }),
        (r) => r.all.length === 2 && r.all[1].length === 64);
}

async function errors() {
    await fails('429', chat().invoke(question('fail with 429')), (e) => e.status === 429 && /as asked/.test(e.message));
    await fails('401', chat({ apiKey: 'wrong-key' }).invoke(question('who')), (e) => e.status === 401);
    const text = question('fails once');
    const answer = await chat({ model: 'stand-in:status=500,fails=1', maxRetries: 2 }).invoke(text);
    check('retries are the client\'s', answer.content.includes(text), answer.content);
}

async function abort() {
    const before = (await get('/state')).gone;
    const controller = new AbortController();
    const long = chat({ model: 'stand-in:events=2000,pace=10' });
    let n = 0;
    await fails('an abort is an error', (async () => {
        for await (const chunk of await long.stream(question('a long story'), { signal: controller.signal }))
            if (chunk.content && ++n === 5) controller.abort();
    })(), (e) => /abort/i.test(`${e.name} ${e.message}`));
    await leaves('an abort reaches the model', before);
}

run(asking, tools, embeddings, errors, abort);
