// langchain.js - @langchain/redis: RedisVectorStore, FluentRedisVectorStore with every kind of filter, and RedisCache,
// from the making of the index to its end. The embeddings are word counts: the same words are near each other.
'use strict';
const {createClient} = require('redis4');
const {Embeddings} = require('@langchain/core/embeddings');
const {Document} = require('@langchain/core/documents');
const {RedisVectorStore, FluentRedisVectorStore, RedisCache, Tag, Num, Text, Geo, Timestamp, Custom} =
    require('@langchain/redis');
const {port, check, rejects, same, run} = require('../../e2e/node/checks.js');

const DIM = 64;

class WordCounts extends Embeddings {
    async embedQuery(text) {
        const vector = new Array(DIM).fill(0.01);
        for (const word of text.toLowerCase().match(/[a-z]+/g) ?? []) {
            let hash = 7;
            for (const letter of word) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
            vector[hash % DIM] += 1;
        }
        return vector;
    }

    async embedDocuments(texts) { return Promise.all(texts.map((text) => this.embedQuery(text))); }
}

const embeddings = new WordCounts({});
const texts =
    ['the cat sleeps on the sofa', 'the dog barks at the moon', 'rockets fly to the moon', 'stocks fall in the market'];
const contents = (documents) => documents.map((d) => d.pageContent);

async function basic(redisClient) {
    const store = new RedisVectorStore(embeddings, {redisClient, indexName: 'plain'});
    check('RedisVectorStore: no index at first', (await store.checkIndexExists()) === false);
    await store.addDocuments(texts.map(
        (pageContent, i) => new Document({pageContent, metadata: {topic: i < 2 ? 'animals' : 'news', n: i}})));
    check('addDocuments makes the index', (await store.checkIndexExists()) === true);
    const one = await store.similaritySearchWithScore('a cat on a sofa', 1);
    check('similaritySearchWithScore', one.length === 1 && one[0][0].pageContent === texts[0] && one[0][1] < 1, one);
    check('the metadata come back', same(one[0][0].metadata, {topic: 'animals', n: 0}), one);
    check('similaritySearch of all', (await store.similaritySearch('moon', 10)).length === 4);
    const same_text = await store.similaritySearchWithScore(texts[2], 1);
    check('the same text is at distance 0', Math.abs(same_text[0][1]) < 1e-6, same_text);
    // metadata are stored as JSON with \" \: \-, so that each "name":value is one word of RediSearch's
    check('a filter of metadata', (await store.similaritySearch('moon', 10, ['"topic":"animals"'])).length === 2);
    check('one or another', (await store.similaritySearch('moon', 10, ['"topic":"animals"', '"n":3'])).length === 3);
    check('a filter that nothing passes', (await store.similaritySearch('moon', 10, ['"topic":"none"'])).length === 0);
    await store.addDocuments([new Document({pageContent: 'more of the moon', metadata: {topic: 'news'}})]);
    check('addDocuments goes on counting keys', (await redisClient.exists('doc:plain:4')) === 1);
    await store.addDocuments([new Document({pageContent: 'of my own key', metadata: {}})], {keys: ['doc:plain:mine']});
    await store.delete({ids: ['mine', '0']});
    check(
        'delete by id',
        !contents(await store.similaritySearch('cat', 10)).includes(texts[0]) &&
            (await redisClient.exists('doc:plain:mine')) === 0);
    await store.delete({deleteAll: true});
    check(
        'delete of all', (await store.checkIndexExists()) === false && (await redisClient.exists('doc:plain:1')) === 0);
    check('dropIndex of what is not there', (await store.dropIndex()) === false);
}

async function schema(redisClient) {
    const customSchema = {genre: {type: 'TAG'}, year: {type: 'NUMERIC', SORTABLE: true}, note: {type: 'TEXT'}};
    const store = new RedisVectorStore(embeddings, {
        redisClient,
        indexName: 'custom',
        customSchema,
        indexOptions: {ALGORITHM: 'FLAT', DISTANCE_METRIC: 'COSINE'},
        ttl: 1000
    });
    await store.addDocuments(texts.map(
        (pageContent, i) => new Document(
            {pageContent, metadata: {genre: i % 2 ? 'odd-one' : 'even', year: 2000 + i, note: 'number ' + i}})));
    check('customSchema: ttl', (await redisClient.ttl('doc:custom:0')) > 900);
    const query = await embeddings.embedQuery('moon');
    const find = async (filter) => (await store.similaritySearchVectorWithScoreAndMetadata(query, 10, filter))
                                       .map(([d]) => d.metadata.year)
                                       .map(Number)
                                       .sort();
    check('customSchema: no filter', same(await find(undefined), [2000, 2001, 2002, 2003]));
    check('customSchema: a tag, whose name has a dot', same(await find({genre: 'odd-one'}), [2001, 2003]));
    check('customSchema: a number', same(await find({year: 2002}), [2002]));
    check(
        'customSchema: numbers, between and from',
        same(await find({year: {min: 2001, max: 2002}}), [2001, 2002]) &&
            same(await find({year: {min: 2003}}), [2003]));
    check('customSchema: words', same(await find({note: 'number 1'}), [2001]));
    check('customSchema: several', same(await find({genre: 'even', year: {max: 2001}}), [2000]));
    check(
        'customSchema: dropIndex leaves the documents',
        (await store.dropIndex()) === true && (await redisClient.exists('doc:custom:0')) === 1);
}

async function fluent(redisClient) {
    const day = (n) => new Date(Date.UTC(2024, 0, n));
    const documents = [
        {
            pageContent: 'a red laptop computer',
            metadata: {
                kind: 'electronics',
                colours: ['red', 'black'],
                price: 900,
                title: 'Fast laptop for work',
                shop: [-122.42, 37.77],
                made: day(1)
            }
        },
        {
            pageContent: 'a blue phone',
            metadata: {
                kind: 'electronics',
                colours: ['blue'],
                price: 400,
                title: 'Small phone',
                shop: [-74.0, 40.71],
                made: day(10)
            }
        },
        {
            pageContent: 'a wooden table',
            metadata: {
                kind: 'garden-tools',
                colours: ['brown', 'black'],
                price: 150,
                title: 'Table for six people',
                shop: [-122.27, 37.8],
                made: day(20)
            }
        },
        {
            pageContent: 'a laptop bag',
            metadata: {
                kind: 'bags',
                colours: ['black'],
                price: 50,
                title: 'Bag for a laptop',
                shop: [2.35, 48.86],
                made: day(30)
            }
        },
    ].map((d) => new Document(d));
    const customSchema = [
        {name: 'kind', type: 'tag'},
        {name: 'colours', type: 'tag', options: {separator: '|'}},
        {name: 'price', type: 'numeric', options: {sortable: true}},
        {name: 'title', type: 'text'},
        {name: 'shop', type: 'geo'},
        {name: 'made', type: 'numeric'},
    ];
    const store = await FluentRedisVectorStore.fromDocuments(
        documents, embeddings, {redisClient, indexName: 'fluent', customSchema});
    const all = ['electronics', 'bags'];
    const find = async (name, filter, right) => {
        const found = await store.similaritySearch('laptop', 10, filter);
        const seen = found.map((d) => d.metadata.price).sort((a, b) => a - b);
        check('Fluent: ' + name, same(seen, right), [String(filter), seen]);
    };
    await find('no filter', undefined, [50, 150, 400, 900]);
    await find('Tag eq', Tag('kind').eq('electronics'), [400, 900]);
    await find('Tag eq, a dash in it', Tag('kind').eq('garden-tools'), [150]);
    await find('Tag eq of several', Tag('kind').eq(all), [50, 400, 900]);
    await find('Tag eq of nothing', Tag('kind').eq([]), [50, 150, 400, 900]);
    await find('Tag ne', Tag('kind').ne('electronics'), [50, 150]);
    await find('Tag with another separator', Tag('colours').eq('black'), [50, 150, 900]);
    await find('Num eq', Num('price').eq(400), [400]);
    await find('Num ne', Num('price').ne(400), [50, 150, 900]);
    await find('Num gt', Num('price').gt(150), [400, 900]);
    await find('Num gte', Num('price').gte(150), [150, 400, 900]);
    await find('Num lt', Num('price').lt(150), [50]);
    await find('Num lte', Num('price').lte(150), [50, 150]);
    await find('Num between', Num('price').between(100, 500), [150, 400]);
    await find('Text eq (a phrase)', Text('title').eq('small phone'), [400]);
    await find('Text ne', Text('title').ne('small phone'), [50, 150, 900]);
    await find('Text match', Text('title').match('laptop'), [50, 900]);
    await find('Text wildcard', Text('title').wildcard('lap*'), [50, 900]);
    await find('Text fuzzy', Text('title').fuzzy('leptop'), [50, 900]);
    await find('Geo within', Geo('shop').within(-122.4, 37.78, 50, 'km'), [150, 900]);
    await find('Geo within miles', Geo('shop').within(-74.006, 40.7128, 5, 'mi'), [400]);
    await find('Geo outside', Geo('shop').outside(-122.4, 37.78, 50, 'km'), [50, 400]);
    await find('Timestamp gt', Timestamp('made').gt(day(10)), [50, 150]);
    await find('Timestamp between', Timestamp('made').between(day(5), day(25)), [150, 400]);
    await find('and', Tag('kind').eq('electronics').and(Num('price').lt(500)), [400]);
    await find('or', Tag('kind').eq('bags').or(Num('price').gt(500)), [50, 900]);
    await find(
        'and of or',
        Tag('colours').eq('black').and(Num('price').lt(100).or(Geo('shop').within(-122.27, 37.8, 5, 'km'))), [50, 150]);
    await find('Custom', Custom('(@kind:{electronics} @price:[0 500])'), [400]);
    const scored = await store.similaritySearchWithScore('a blue phone', 1);
    check(
        'Fluent: the nearest, with its metadata',
        scored[0][0].pageContent === 'a blue phone' && Math.abs(scored[0][1]) < 1e-6 && same(scored[0][0].metadata, {
            kind: 'electronics',
            colours: 'blue',
            price: 400,
            title: 'Small phone',
            shop: [-74, 40.71],
            made: day(10).getTime() / 1000
        }),
        scored);
    check('Fluent: checkIndexState', (await store.checkIndexState()) === 'default');
    const retriever = store.asRetriever({k: 2, filter: Tag('kind').eq('electronics')});
    check('Fluent: as a retriever', (await retriever.invoke('laptop')).length === 2);
    await rejects('Fluent: a filter that is text', store.similaritySearch('x', 1, '@kind:{bags}'), /FilterExpression/);
    check(
        'Fluent: delete of all',
        (await store.delete({deleteAll: true})) === undefined && (await store.checkIndexState()) === 'none');
}

async function cache(redisClient) {
    const answers = new RedisCache(redisClient);
    check('RedisCache: a miss', (await answers.lookup('question', 'model')) === null);
    await answers.update('question', 'model', [{text: 'answer'}]);
    check('RedisCache: a hit', (await answers.lookup('question', 'model'))[0].text === 'answer');
}

run(async () => {
    const problems = [];
    const client = createClient({socket: {host: '127.0.0.1', port, reconnectStrategy: false}});
    client.on('error', (e) => problems.push(e.message));
    await client.connect();
    await client.flushAll();
    await basic(client);
    await schema(client);
    await fluent(client);
    await cache(client);
    await client.quit();
    check('no error events', problems.length === 0, problems);
});
