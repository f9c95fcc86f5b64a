// view_labels.js - view 4: pairs to judge, one at a time, by key. The judge's guess is hidden until one has chosen.
'use strict';

shell.view({
  id: 'labels', key: '4', title: 'Labels', lead: 'Does the cached answer fit the question? Each verdict sharpens the threshold.',
  async open(view) {
    const {scope, body, state} = view;
    const cache = await shell.cacheOf(view, 'labels');
    if (!cache) return dom.fill(body, parts.card('Begin here', shell.noCache()));
    state.done ||= {good: 0, bad: 0, agreed: 0, guessed: 0};
    const figures = parts.figures([['waiting', 'Pairs here'], ['good', 'You said good'], ['bad', 'You said bad'], ['agree', 'Judge agreed']]);
    const stage = el('div'), after = el('div', {'aria-live': 'polite'});
    let queue = [], busy = false;
    dom.fill(body, figures, stage, after);

    const empty = () => parts.card('Nothing to judge', parts.empty('No pair waits for a label.',
      'Pairs come from audits of would-be hits and from misses that are sampled, in categories with RISK, and the last 4,096 are kept. More come with a larger share of audits:',
      'redis-cli SC.CAT.SET ' + cache.name + ' CATEGORY AUDIT 0.05'),
    el('div', el('button', {type: 'button', onclick: () => more()}, 'Look again')));

    function count() {
      const done = state.done;
      figures.set('waiting', format.count(queue.length), 'taken from the cache\'s list');
      figures.set('good', format.count(done.good), 'since this page was opened');
      figures.set('bad', format.count(done.bad), '');
      figures.set('agree', done.guessed ? format.share(done.agreed / done.guessed) : format.missing, done.guessed ? 'of ' + done.guessed + ' it had guessed' : 'it has not guessed yet');
    }

    const guessOf = (pair) => pair.guess === 'good' || pair.guess === true ? 'good' : pair.guess === 'bad' || pair.guess === false ? 'bad' : null;

    function show() {
      count();
      const pair = queue[0];
      if (!pair) return dom.fill(stage, empty());
      const guess = el('p.muted', {id: 'guess', role: 'status'}, guessOf(pair) ? 'The judge has a guess. It is hidden until you choose (J shows it).' : 'The judge has no guess about this pair.');
      dom.fill(stage, el('section.card', {'aria-label': 'Pair ' + pair.audit}, el('div.row', el('div.row.start', parts.chip(pair.category, 'info'),
        el('span', parts.meant('similarity', 'similarity'), ' ', el('b', format.similarity(pair.similarity))), el('span.muted', 'pair ' + pair.audit)), el('span.muted.small', queue.length + ' here')),
      el('div.cols', el('section', {'aria-label': 'Asked'}, el('h3', 'Asked now'), el('pre', pair.text || '(no text)')),
        el('section', {'aria-label': 'Kept'}, el('h3', 'Asked then'), el('pre', pair.entry_text || '(no text)'))),
      el('section', {'aria-label': 'Answer'}, el('h3', 'The answer that the cache would give'), el('pre', pair.entry_value || '(no value)')), guess,
      el('div.row', el('div.row.start', el('button.main', {type: 'button', onclick: () => judge(true)}, 'Good ', el('kbd', 'G')),
        el('button', {type: 'button', onclick: () => judge(false)}, 'Bad ', el('kbd', 'B')),
        el('button', {type: 'button', onclick: later}, 'Later ', el('kbd', 'S'))),
      guessOf(pair) ? el('button.slim', {type: 'button', onclick: reveal}, 'Show the guess ', el('kbd', 'J')) : null)));
    }

    function reveal() {
      const guess = queue[0] && guessOf(queue[0]);
      if (guess) dom.text(document.getElementById('guess'), 'The judge\'s guess: ' + guess + '.');
    }

    function later() {
      if (queue.length) queue.push(queue.shift());
      show();
    }

    async function judge(good) {
      const pair = queue[0];
      if (!pair || busy) return;
      busy = true;
      try {
        await scope.post('audit', {cache: cache.name, audit: pair.audit, good});
        const guess = guessOf(pair);
        state.done[good ? 'good' : 'bad']++;
        if (guess) {
          state.done.guessed++;
          if ((guess === 'good') === good) state.done.agreed++;
        }
        queue.shift();
        dom.fill(after, parts.note('Pair ' + pair.audit + ' is ' + (good ? 'good' : 'bad') + '.' + (guess ? ' The judge had guessed ' + guess + '.' : ''), 'good'));
        if (!queue.length) await more();
        else show();
      } catch (error) {
        if (!scope.signal.aborted) dom.fill(after, parts.note(error.message, 'bad'));
      }
      busy = false;
    }

    async function more() {
      const said = await scope.get('audits', {cache: cache.name, n: 20});
      const have = new Set(queue.map((pair) => pair.audit));
      queue.push(...said.pairs.filter((pair) => !have.has(pair.audit)));
      show();
    }

    scope.on(window, 'keydown', (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select, dialog')) return;
      const call = {g: () => judge(true), b: () => judge(false), s: later, j: reveal}[event.key.toLowerCase()];
      if (!call || !queue.length) return;
      event.preventDefault();
      call();
    });
    await more();
  },
});
