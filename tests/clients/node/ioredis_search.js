// ioredis_search.js - FT.* and JSON.* through ioredis, which has no methods for them: call, pipelines and MULTI.
'use strict';
const Redis = require('ioredis');
const {port, check, rejects, same, run} = require('../../e2e/node/checks.js');
const {films, blob, cosine, nearest, close} = require('./films.js');

const QUERY = [0.1, 1, 0, 0];

// [total, key, [name, value ...], ...] as a list of { id, name: value ... }
function rowsOf(reply) {
    const rows = [];
    for (let i = 1; i < reply.length; i += 2) {
        const row = {id: reply[i]};
        for (let j = 0; j < reply[i + 1].length; j += 2) row[reply[i + 1][j]] = reply[i + 1][j + 1];
        rows.push(row);
    }
    return rows;
}

run(async () => {
    const problems = [];
    const client = new Redis({port, host: '127.0.0.1', retryStrategy: null, lazyConnect: true});
    client.on('error', (e) => problems.push(e.message));
    await client.connect();
    await client.flushall();

    check(
        'FT.CREATE',
        (await client.call(
            'FT.CREATE', 'films', 'ON', 'HASH', 'PREFIX', 1, 'film:', 'SCHEMA', 'title', 'TEXT', 'genre', 'TAG',
            'SORTABLE', 'year', 'NUMERIC', 'vector', 'VECTOR', 'HNSW', 6, 'TYPE', 'FLOAT32', 'DIM', 4,
            'DISTANCE_METRIC', 'COSINE')) === 'OK');
    const pipeline = client.pipeline();
    for (const film of films)
        pipeline.hset(
            'film:' + film.id, 'title', film.title, 'genre', film.genre, 'year', film.year, 'vector',
            blob(film.vector));
    const written = await pipeline.exec();
    check('hset in a pipeline', written.every(([error, n]) => error === null && n === 4), written);

    const near = await client.call(
        'FT.SEARCH', 'films', '*=>[KNN 3 @vector $q AS distance]', 'PARAMS', 2, 'q', blob(QUERY), 'SORTBY', 'distance',
        'RETURN', 2, 'title', 'distance', 'DIALECT', 2);
    check(
        'FT.SEARCH KNN',
        near[0] === 3 && same(rowsOf(near).map((r) => r.id), nearest(QUERY, 3).map((id) => 'film:' + id)) &&
            rowsOf(near).every(
                (r) => close(r.distance, cosine(QUERY, films.find((f) => 'film:' + f.id === r.id).vector))),
        near);
    const horror = await client.call(
        'FT.SEARCH', 'films', '(@genre:{horror} @year:[1970 1976])=>[KNN 3 @vector $q]', 'PARAMS', 2, 'q', blob(QUERY),
        'RETURN', 1, '__vector_score', 'DIALECT', 2);
    check(
        'FT.SEARCH with a filter, the distance under its own name',
        horror[0] === 1 && horror[1] === 'film:jaws' && close(horror[2][1], 1), horror);
    const buffers = await client.callBuffer('FT.SEARCH', 'films', '@genre:{drama}', 'RETURN', 1, 'vector');
    check('callBuffer: the vector comes back bit for bit', buffers[2][1].equals(blob([0, 0, 0, 1])), buffers);
    const groups = await client.call(
        'FT.AGGREGATE', 'films', '*', 'GROUPBY', 1, '@genre', 'REDUCE', 'COUNT', 0, 'AS', 'n', 'SORTBY', 4, '@n',
        'DESC', '@genre', 'ASC', 'LIMIT', 0, 1);
    check('FT.AGGREGATE', same(groups.slice(1), [['genre', 'horror', 'n', '2']]), groups);

    const replies = await client.multi()
                        .hset('film:new', 'genre', 'new')
                        .call('FT.SEARCH', 'films', '@genre:{new}', 'NOCONTENT')
                        .exec();
    check(
        'FT.SEARCH within MULTI sees its writes, or is refused',
        same(replies[1], [null, [1, 'film:new']]) || /MULTI|transaction/i.test(String(replies[1][0])), replies);
    check(
        'after EXEC it is found',
        same(await client.call('FT.SEARCH', 'films', '@genre:{new}', 'NOCONTENT'), [1, 'film:new']));
    await rejects('no such index', client.call('FT.SEARCH', 'none', '*'), /no such index|unknown index name/i);

    check(
        'JSON.SET, JSON.GET',
        (await client.call('JSON.SET', 'doc', '$', '{"a":{"b":[1,2]}}')) === 'OK' &&
            (await client.call('JSON.GET', 'doc', '$.a.b')) === '[[1,2]]' &&
            (await client.call('JSON.GET', 'doc')) === '{"a":{"b":[1,2]}}');
    check('JSON.NUMINCRBY', (await client.call('JSON.NUMINCRBY', 'doc', '$.a.b[0]', 4)) === '[5]');
    check(
        'JSON.DEL',
        (await client.call('JSON.DEL', 'doc', '$.a.b')) === 1 && (await client.call('JSON.GET', 'doc')) === '{"a":{}}');
    check(
        'FT.DROPINDEX DD',
        (await client.call('FT.DROPINDEX', 'films', 'DD')) === 'OK' && (await client.exists('film:heat')) === 0);
    check('quit', (await client.quit()) === 'OK');
    check('no error events', problems.length === 0, problems);
});
