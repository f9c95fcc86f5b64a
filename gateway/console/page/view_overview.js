// view_overview.js - view 1: is it well, what is asked, what comes from the cache, what that saves.
'use strict';

// Outcomes in the order in which they are piled, with their colours in all views.
const outcomes = [['exact', 'exact', 2], ['hit', 'hit', 1], ['stale', 'stale', 4], ['audit', 'audit', 3], ['miss', 'miss', 5], ['other', 'bypass, negative, down', 6]];
const outcomeTone = (status) => ({hit: 'info', exact: 'good', stale: 'info', audit: 'warn', down: 'bad', bypass: 'warn'})[status] || '';

shell.view({
  id: 'overview', key: '1', title: 'Overview', lead: 'What the cache answers, and what that saves.',
  async open({scope, pick, body, state}) {
    state.window ||= '10m';
    const figures = parts.figures([['rate', 'Requests', 'requests'], ['m1', 'Hit rate, 1 min', 'hit-rate'], ['h1', 'Hit rate, 1 h', 'hit-rate'],
      ['h24', 'Hit rate, 24 h', 'hit-rate'], ['tokens', 'Tokens saved', 'saved'], ['time', 'Model time saved', 'saved'], ['cost', 'Money saved', 'saved'],
      ['hit', 'First byte of a hit', 'first-byte'], ['miss', 'First byte of a miss', 'first-byte']]);
    const traffic = chart.draw(scope, {label: 'Requests a second by outcome', height: 220,
      series: outcomes.map(([, label, c]) => ({label, c, stack: true, show: (value) => format.rate(value) + '/s'}))});
    const rates = chart.draw(scope, {label: 'Hit rate', unit: 'share', top: 1, height: 150, series: [{label: 'hit rate', c: 1, area: true, show: format.share}]});
    const firsts = chart.draw(scope, {label: 'First byte, p50 and p99', unit: 'ms', height: 150, series: [{label: 'hit p50', c: 1, show: format.millis},
      {label: 'hit p99', c: 1, dash: [4, 3], show: format.millis}, {label: 'miss p50', c: 3, show: format.millis}, {label: 'miss p99', c: 3, dash: [4, 3], show: format.millis}]});
    const health = el('div');
    const nothing = el('div');
    const charts = el('div.stack', parts.cardWith('Requests', 'per second, by what the cache said', traffic), el('div.cols',
      parts.cardWith('Hit rate', 'answered from an entry, of all look-ups', rates), parts.cardWith('First byte', 'at the gateway', firsts)));
    pick.append(parts.choice('Span of the graphs', [['10m', '10 minutes'], ['24h', '24 hours']], state.window, (value) => {
      state.window = value;
      scope.tick();
    }));
    dom.fill(body, nothing, figures, charts, parts.card('State', health));
    let healthSays = null;

    await scope.poll(async () => {
      const now = await scope.get('overview', {window: state.window});
      const window = now.rates['1m'], saved = now.saved;
      figures.set('rate', format.rate(window.per_second) + ' /s', format.count(now.total_requests) + ' since the start');
      for (const [slot, span] of [['m1', '1m'], ['h1', '1h'], ['h24', '24h']]) {
        const one = now.rates[span];
        figures.set(slot, one.requests ? format.share(one.hit_rate) : format.missing, 'of ' + format.count(one.requests) + ' requests');
      }
      figures.set('tokens', format.count(saved.tokens), 'in answers that were served');
      figures.set('time', format.duration(saved.llm_ms), 'that a model did not compute');
      figures.set('cost', format.dollars(saved.cost), 'audits cost ' + format.dollars(saved.cost_audits));
      for (const kind of ['hit', 'miss']) {
        const one = now.first_byte[kind];
        figures.set(kind, one.n ? format.micros(one.p50_us) : format.missing, one.n ? 'p99 ' + format.micros(one.p99_us) : 'none yet');
      }
      const h = now.history;
      traffic.set([h.t, ...outcomes.map(([name]) => h[name])]);
      rates.set([h.t, h.hit_rate]);
      firsts.set([h.t, h.hit_p50_ms, h.hit_p99_ms, h.miss_p50_ms, h.miss_p99_ms]);
      charts.hidden = false;
      drawState(now);
      dom.fill(nothing, now.total_requests ? null : parts.card('Begin here', firstSteps(now)));
    });

    function drawState(now) {
      const rows = [['quire-server', now.server.ok ? 'good' : 'bad', now.server.ok ? 'answers' : 'gone', [now.server.address, now.server.note].filter(Boolean).join(' · ')]];
      for (const one of now.upstreams) rows.push(['upstream ' + one.name, one.state === 'up' || one.state === 'ok' ? 'good' : 'bad', one.state, one.note || '']);
      if (now.encoder) rows.push(['encoder', now.encoder.ok ? 'good' : 'bad', now.encoder.state, now.encoder.note || '']);
      for (const one of now.breakers) rows.push(['breaker ' + one.cache + ' / ' + one.category, 'warn', 'open', one.reason || '']);
      const says = JSON.stringify(rows);
      if (says === healthSays) return;
      healthSays = says;
      dom.fill(health, el('dl.pairs', rows.map(([name, tone, word, note]) => [el('dt', name), el('dd', el('span.live', el('span.dot.' + tone), word),
        note ? [' ', el('span.muted', note)] : null)])), now.upstreams.length ? null : el('p.muted.small', 'No upstream is configured: this gateway shows the server only.'));
    }
  },
});

function firstSteps(now) {
  if (!now.upstreams.length) return parts.empty('No request has gone through this gateway.',
    'It was started without an upstream. To cache the answers of a model, start it with one and give its address to your application:',
    'quire-gateway --upstream http://127.0.0.1:8000 --listen 127.0.0.1:8080\nexport OPENAI_BASE_URL=http://127.0.0.1:8080/v1');
  return parts.empty('No request has come yet.', 'Give the gateway\'s address to your application, or ask by hand; the second time the answer comes from the cache:',
    'export OPENAI_BASE_URL=' + location.origin + '/v1\ncurl -i ' + location.origin + '/v1/chat/completions -H \'Content-Type: application/json\' -d \\\n' +
    '  \'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}\'');
}
