// view_docs.js - the documents that the gateway has with it (Markdown), drawn: where a meaning leads to.
'use strict';

const docs = (() => {
	// 'docs/cache.md#terms' -> the place in this page where it is read
	const link = path => shell.link('docs', ...path.replace(/^docs\//, '').split('#'));
	const id = title =>
		'd-' +
		title
			.toLowerCase()
			.replace(/[^\w\- ]/g, '')
			.replaceAll(' ', '-');
	const item = /^([*-]|\d+\.) /;

	// Links lead to pages that the gateway has, and elsewhere; those to other files of the sources are their words.
	function target(words, to, page) {
		if (/^https?:/.test(to)) return el('a', {href: to, rel: 'noreferrer'}, words);
		const [file, anchor] = to.split('#');
		if (file && !/^[\w-]+\.md$/.test(file)) return el('span', {title: to}, words);
		return el('a', {href: link((file || page) + (anchor ? '#' + anchor : ''))}, words);
	}

	function inline(text, page) {
		return text.split(/(``.+?``|`[^`]+`|\*\*.+?\*\*|\*[^*\s][^*]*\*|!?\[[^\]]*\]\([^)]*\))/).map((part, i) => {
			if (i % 2 === 0) return part;
			if (part[0] === '`') return el('code', part.replace(/^`+ ?| ?`+$/g, ''));
			if (part[0] === '*')
				return el(part[1] === '*' ? 'strong' : 'em', inline(part.replace(/^\*+|\*+$/g, ''), page));
			const [, picture, words, to] = /^(!?)\[(.*)\]\((.*)\)$/.exec(part);
			return picture ? el('span.muted', 'Picture: ' + words) : target(inline(words, page), to, page);
		});
	}

	function table(rows, page) {
		const cells = row =>
			row
				.split(/(?<!\\)\|/)
				.slice(1, -1)
				.map(cell => inline(cell.trim().replaceAll('\\|', '|'), page));
		const line = (kind, row) =>
			el(
				'tr',
				cells(row).map(cell => el(kind, cell))
			);
		return el(
			'div.scroll',
			{tabIndex: 0, role: 'region', 'aria-label': 'Table'},
			el(
				'table',
				el('thead', line('th', rows[0])),
				el(
					'tbody',
					rows.slice(2).map(row => line('td', row))
				)
			)
		);
	}

	function draw(text, page) {
		const out = [],
			ids = new Set(),
			lines = text.replace(/<!--[^]*?-->/g, '').split('\n');
		let at = 0;
		const take = test => {
			const from = at;
			while (at < lines.length && test(lines[at])) at++;
			return lines.slice(from, at);
		};
		while (at < lines.length) {
			const line = lines[at],
				heading = /^(#+) (.*)/.exec(line);
			if (!line.trim()) at++;
			else if (heading) {
				const name = id(heading[2]),
					first = !ids.has(name);
				ids.add(name);
				out.push(
					el(
						'h' + Math.max(2, Math.min(4, heading[1].length)),
						{id: first ? name : null, tabIndex: -1},
						inline(heading[2], page)
					)
				);
				at++;
			} else if (/^```/.test(line)) {
				at++;
				out.push(el('pre', take(one => !/^```/.test(one)).join('\n')));
				at++;
			} else if (/^ {4}/.test(line))
				out.push(
					el(
						'pre',
						take(one => !one.trim() || /^ {4}/.test(one))
							.map(one => one.slice(4))
							.join('\n')
							.trimEnd()
					)
				);
			else if (line[0] === '|')
				out.push(
					table(
						take(one => one[0] === '|'),
						page
					)
				);
			else if (item.test(line)) {
				const items = take(one => item.test(one) || /^ +\S/.test(one))
					.join('\n')
					.split(/\n(?! )/);
				out.push(
					el(
						/^\d/.test(line) ? 'ol' : 'ul',
						{start: parseInt(line) || null},
						items.map(one => el('li', inline(one.replace(item, '').replace(/\n */g, ' '), page)))
					)
				);
			} else
				out.push(
					el(
						'p',
						inline(take(one => one.trim() && !/^(#+ |```|\|)/.test(one) && !item.test(one)).join(' '), page)
					)
				);
		}
		return out;
	}

	return {link, id, draw};
})();

shell.view({
	id: 'docs',
	title: 'Documents',
	lead: 'The documents of this version, as the gateway has them with it.',
	async open({scope, args, h1, lead, body}) {
		const page = args[0] || 'index.md';
		dom.fill(lead, 'docs/' + page + ' of this version. ', el('a', {href: '#/docs'}, 'All documents'));
		const text = await scope.doc(page),
			[, title, rest] = /^# (.*)\n([^]*)/.exec(text);
		dom.text(h1, title);
		document.title = title + ' · Quire';
		dom.fill(body, el('section.card.doc', {'aria-label': title}, docs.draw(rest, page)));
		shell.show(args[1] && 'd-' + args[1]);
	}
});
