// view_requests.js - view 6: the last requests of the gateway, what became of each and why.
'use strict';

shell.view({
  id: 'requests', key: '6', title: 'Requests', lead: 'The last 1,000 that went through this gateway, newest first.',
  async open({scope, body, state}) {
    state.status ||= '';
    state.words ||= '';
    const shown_max = 200;
    let all = [], last = null;
    const words = el('input', {type: 'search', value: state.words, placeholder: 'model, tenant, category, reason ...', oninput: () => {
      state.words = words.value;
      draw();
    }});
    const counts = el('p.muted.small', {role: 'status'});
    const table = parts.table({
      caption: 'Requests', key: (row) => row.id,
      empty: 'No request matches.',
      columns: [
        {title: 'Time', kind: 'keep', cell: (row) => format.clock(row.at_ms)},
        {title: 'Cache', kind: 'keep', meaning: 'status', cell: (row) => parts.chip(row.status, outcomeTone(row.status))},
        {title: 'Why', kind: 'text', cell: (row) => [row.reason, row.text ? el('div.muted.small.clip', row.text) : null]},
        {title: 'Model', kind: 'text', cell: (row) => [row.model || format.missing, el('div.muted.small', row.route)]},
        {title: 'Category', cell: (row) => row.category || format.missing},
        {title: 'Tenant', cell: (row) => row.tenant || format.missing},
        {title: 'Status', num: true, cell: (row) => el('span' + (row.http >= 500 ? '.bad' : row.http >= 400 ? '.warn' : ''), String(row.http))},
        {title: 'Similarity', num: true, meaning: 'similarity', sort: (row) => row.similarity ?? -1, cell: (row) => [format.similarity(row.similarity),
          row.threshold > 0 ? el('div.muted.small', 'of ' + format.similarity(row.threshold)) : null]},
        {title: 'Time taken', num: true, sort: (row) => row.total_us, cell: (row) => [format.micros(row.total_us), parts.meter([[row.embed_us / row.total_us, 'k3'],
          [row.cache_us / row.total_us, 'k1'], [row.upstream_us / row.total_us, 'k5']], 'vector ' + format.micros(row.embed_us) + ', cache ' + format.micros(row.cache_us) +
          ', upstream ' + format.micros(row.upstream_us))]},
      ],
    });
    const nothing = el('div');
    const listed = parts.card('Requests', el('form.grid', {onsubmit: (event) => event.preventDefault()}, parts.field('Search', words),
      parts.field('What the cache said', parts.select([['', 'all'], 'exact', 'hit', 'stale', 'audit', 'miss', 'negative', 'bypass', 'down'], state.status, (value) => {
        state.status = value;
        draw();
      }))), counts, table, el('ul.legend', [['vector', 3], ['cache', 1], ['upstream', 5]].map(([name, c]) => el('li', el('span.swatch.k' + c), name))));
    dom.fill(body, nothing, listed);

    function draw() {
      const wanted = state.words.toLowerCase();
      const right = all.filter((row) => (!state.status || row.status === state.status) &&
        (!wanted || [row.model, row.route, row.tenant, row.category, row.reason, row.text, row.http].join(' ').toLowerCase().includes(wanted)));
      dom.text(counts, right.length + ' of ' + all.length + ' requests' + (right.length > shown_max ? '; the first ' + shown_max + ' are shown' : ''));
      table.set(right.slice(0, shown_max));
    }

    await scope.poll(async () => {
      const now = await scope.get('requests', {after: last});
      if (now.requests.length) {
        all = [...now.requests, ...all].sort((a, b) => b.id - a.id).slice(0, 1000);
        last = all[0].id;
      }
      listed.hidden = all.length === 0;
      dom.fill(nothing, all.length ? null : parts.card('Begin here', firstSteps({upstreams: now.upstreams ?? [1]})));
      draw();
    });
  },
});
