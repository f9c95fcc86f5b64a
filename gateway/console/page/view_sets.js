// view_sets.js - view 8: what vector sets are made of, what they hold in memory, how recall follows from effort.
'use strict';

shell.view({
  id: 'sets', key: '8', title: 'Sets', lead: 'Vector sets: segments, memory, recall, merges.',
  async open({scope, body, args, state}) {
    const figures = parts.figures([['rows', 'Rows'], ['memory', 'In memory', 'memory'], ['disk', 'On the disk'], ['reads', 'Reads a search', 'reads'], ['rounds', 'Rounds a search', 'rounds'],
      ['merges', 'Merges', 'segments']]);
    const table = parts.table({
      caption: 'Vector sets', key: (row) => row.key, empty: noSet(),
      columns: [
        {title: 'Set', kind: 'text', sort: (row) => row.key, cell: (row) => el('a', {href: shell.link('sets', row.key), 'aria-current': row.key === state.key ? 'true' : null}, row.key)},
        {title: 'Elements', num: true, sort: (row) => row.size, cell: (row) => format.count(row.size)},
        {title: 'Dimensions', num: true, cell: (row) => [String(row.vector_dim), el('div.muted.small', row.vector_type + ' ' + row.metric)]},
        {title: 'Segments', num: true, meaning: 'segments', cell: (row) => [format.count(row.segments), el('div.muted.small', row.segments ? row.index : 'none yet')]},
        {title: 'Rows in memory', num: true, cell: (row) => format.count(row.memory_rows)},
        {title: 'Dead', num: true, meaning: 'dead-rows', cell: (row) => format.count(row.dead_rows)},
        {title: 'Memory', num: true, meaning: 'memory', sort: (row) => row.memory_bytes + row.resident_bytes, cell: (row) => [format.bytes(row.memory_bytes + row.resident_bytes),
          row.memory_budget ? el('div.muted.small', 'codes: budget ' + format.bytes(row.memory_budget)) : null,
          parts.meter([[row.memory_bytes / (row.memory_bytes + row.resident_bytes + row.cache_bytes), 'k2'], [row.resident_bytes / (row.memory_bytes + row.resident_bytes + row.cache_bytes), 'k1'],
            [row.cache_bytes / (row.memory_bytes + row.resident_bytes + row.cache_bytes), 'k4']],
          'rows in memory ' + format.bytes(row.memory_bytes) + ', codes of segments ' + format.bytes(row.resident_bytes) + ', hot blocks ' + format.bytes(row.cache_bytes))]},
        {title: 'Disk', num: true, sort: (row) => row.disk_bytes, cell: (row) => format.bytes(row.disk_bytes)},
        {title: 'Merges', num: true, cell: (row) => row.merging ? parts.chip('merging', 'info') : format.count(row.merges)},
      ],
    });
    const detail = el('div');
    dom.fill(body, figures, parts.card('Vector sets', table, el('ul.legend', [['rows in memory', 2], ['codes of segments', 1], ['hot blocks', 4]].map(([name, c]) => el('li', el('span.swatch.k' + c), name)))), detail);
    let opened = null;
    await scope.poll(async () => {
      const now = await scope.get('sets');
      const sum = (name) => now.sets.reduce((total, one) => total + (one[name] || 0), 0);
      figures.set('rows', format.count(sum('size')), format.count(sum('memory_rows')) + ' of them in memory');
      const held = sum('memory_bytes') + sum('resident_bytes');
      figures.set('memory', format.bytes(held), now.memory?.budget ? 'codes: budget ' + format.bytes(now.memory.budget) : 'no budget is set');
      figures.set('disk', format.bytes(sum('disk_bytes')), format.bytes(sum('raw_bytes')) + ' as vectors');
      figures.set('reads', now.searches ? format.rate(now.reads_per_search) : format.missing, 'mean of ' + format.count(now.searches) + ' searches');
      figures.set('rounds', now.searches ? format.rate(now.rounds_per_search) : format.missing, 'waits for the disk');
      figures.set('merges', format.count(sum('merges')), now.sets.some((one) => one.merging) ? 'one is under way' : 'none under way');
      const key = now.sets.some((one) => one.key === args[0]) ? args[0] : now.sets[0]?.key;
      state.key = key;
      table.set(now.sets);
      if (key !== undefined && opened !== key) {
        opened = key;
        await show(key);
      }
      if (key === undefined) dom.fill(detail);
    });

    async function show(key) {
      const {info, calibration} = await scope.get('set', {key});
      const curve = calibration?.length ? chart.draw(scope, {label: 'Recall by effort, as measured at the last merge', unit: 'share', height: 200, top: 1, x: {label: 'effort', show: (v) => String(Math.round(v))},
        series: [{label: 'recall', c: 1, area: true, show: format.share}]}) : null;
      const reads = calibration?.length && calibration[0].length > 2 ? chart.draw(scope, {label: 'Reads by effort', height: 130, x: {label: 'effort', show: (v) => String(Math.round(v))},
        series: [{label: 'reads', c: 3, show: format.rate}]}) : null;
      const said = el('div', {role: 'status'});
      const button = el('button', {type: 'button', onclick: async () => {
        button.disabled = true;
        dom.fill(said, el('p.muted', 'Every byte of its segments is read ...'));
        try {
          const found = await scope.post('check', {key});
          dom.fill(said, found.findings ? [parts.note(format.count(found.findings) + ' findings', 'bad'), el('ul', found.first.map((one) => el('li', one)))]
            : parts.note('Every byte is as it was written: no finding.', 'good'));
        } catch (error) {
          if (!scope.signal.aborted) dom.fill(said, parts.note(error.message, 'bad'));
        }
        button.disabled = false;
      }}, 'Check it (VCHECK)');
      dom.fill(detail, el('div.cols', parts.cardWith('Recall and effort of ' + key, parts.meant('measured when its segments were written', 'recall'), curve ? [curve, reads]
        : parts.empty('Nothing of it is on the disk.', 'Its rows are in memory and are searched there. A segment is written when memory-rows are reached, or by hand:', 'redis-cli VSEAL ' + key)),
      parts.card('What ' + key + ' is made of', parts.pairs(Object.entries(info).filter(([, value]) => !Array.isArray(value) && typeof value !== 'object').map(([name, value]) => [name.replaceAll('_', '-'),
        name.endsWith('bytes') ? format.bytes(value) : typeof value === 'number' ? format.count(value) : String(value)])), info.attributes?.length ? parts.pairs([['attributes', info.attributes.map((one) =>
        Array.isArray(one) ? one.join(' ') : String(one)).join(', ')]]) : null, el('div', button), said)));
      curve?.set([calibration.map((p) => p[0]), calibration.map((p) => p[1])]);
      reads?.set([calibration.map((p) => p[0]), calibration.map((p) => p[2])]);
    }
  },
});
