// dom.js - elements are made here and nowhere else: text is always a text node, never markup.
'use strict';

const dom = (() => {
	const SVG = 'http://www.w3.org/2000/svg';

	function add(node, child) {
		if (child === null || child === undefined || child === false) return;
		if (Array.isArray(child)) for (const one of child) add(node, one);
		else node.append(child instanceof Node ? child : String(child));
	}

	function set(node, props) {
		for (const [name, value] of Object.entries(props)) {
			if (value === null || value === undefined || value === false) continue;
			if (typeof value === 'function') node.addEventListener(name.slice(2), value);
			else if (name in node && name !== 'list' && !(node instanceof SVGElement)) node[name] = value;
			else node.setAttribute(name, value === true ? '' : value);
		}
	}

	function make(node, classes, rest) {
		if (classes.length) node.setAttribute('class', classes.join(' '));
		let children = rest;
		const first = rest[0];
		if (first && typeof first === 'object' && !Array.isArray(first) && !(first instanceof Node)) {
			set(node, first);
			children = rest.slice(1);
		}
		add(node, children);
		return node;
	}

	// el('p.muted.small', {title: 'x', onclick: f}, 'text', node, [more]): props are optional, null children are left out.
	function el(spec, ...rest) {
		const [tag, ...classes] = spec.split('.');
		return make(document.createElement(tag), classes, rest);
	}

	function svg(spec, ...rest) {
		const [tag, ...classes] = spec.split('.');
		return make(document.createElementNS(SVG, tag), classes, rest);
	}

	function fill(node, ...children) {
		node.replaceChildren();
		add(node, children);
		return node;
	}

	// Writes only what differs, so that a reader of the screen hears nothing twice and a selection stays.
	function text(node, value) {
		const string = String(value);
		if (node.textContent !== string) node.textContent = string;
	}

	return {el, svg, fill, text};
})();
const {el, svg} = dom;
