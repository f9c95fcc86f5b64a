// api.js - requests to /ui/api/. The credential is in this closure and nowhere else: a reload forgets it.
'use strict';

class ApiError extends Error {
	constructor(status, message, code) {
		super(message);
		this.status = status;
		this.code = code;
	}
}

const api = (() => {
	let credential = null;
	const utf8 = text => {
		let bytes = '';
		for (const byte of new TextEncoder().encode(text)) bytes += String.fromCharCode(byte);
		return bytes;
	};

	function signIn(user, secret) {
		credential = user === null ? 'Bearer ' + secret : 'Basic ' + btoa(utf8(user + ':' + secret));
	}

	function signOut() {
		credential = null;
	}

	async function ask(path, body, signal, kind = 'json') {
		const headers = {Accept: 'application/json'};
		if (credential) headers.Authorization = credential;
		const options = {method: 'GET', headers, credentials: 'omit', cache: 'no-store', signal};
		if (body !== undefined) {
			options.method = 'POST';
			headers['Content-Type'] = 'application/json';
			options.body = JSON.stringify(body);
		}
		let answer;
		try {
			answer = await fetch('/ui/' + (kind === 'json' ? 'api/' : 'docs/') + path, options);
		} catch (error) {
			if (error.name === 'AbortError') throw error;
			throw new ApiError(0, 'The gateway does not answer. Is quire-gateway still running?', 'unreachable');
		}
		let said = null;
		try {
			said = await answer[answer.ok ? kind : 'json']();
		} catch (error) {
			if (error.name === 'AbortError') throw error;
		}
		if (!answer.ok || said === null) {
			throw new ApiError(
				answer.status,
				said?.error?.message || 'The gateway answered with status ' + answer.status + '.',
				said?.error?.code
			);
		}
		return said;
	}

	// What the first view will ask for is under way while the page is still being made; taken once, by the first who asks.
	const early = new Map();

	function begin(paths) {
		early.clear();
		for (const one of paths) {
			const answer = ask(one);
			answer.catch(() => {}); // who takes it sees it
			early.set(one, answer);
		}
	}

	function get(name, query, signal) {
		const wanted = path(name, query),
			begun = early.get(wanted);
		early.delete(wanted);
		return begun || ask(wanted, undefined, signal);
	}

	// path('entries', {cache: 'llm', n: 10}) leaves out what is null or empty.
	function path(name, query) {
		const given = Object.entries(query || {}).filter(
			([, value]) => value !== null && value !== undefined && value !== ''
		);
		return given.length ? name + '?' + new URLSearchParams(given) : name;
	}

	return {
		begin,
		get,
		post: (name, body, signal) => ask(name, body, signal),
		doc: (name, signal) => ask(encodeURIComponent(name), undefined, signal, 'text'),
		signIn,
		signOut,
		signedIn: () => credential !== null
	};
})();
