#!/usr/bin/env python3
"""rooms.py - proves tests/rooms.txt: who includes and who calls whom, room by room.

    rooms.py includes            by the #include lines of the sources: nothing that rooms.txt does not allow, and
                                 every arrow that it allows is used
    rooms.py readmes             sources that the README of their room does not name
    rooms.py symbols BUILD_DIR   by what the objects of a build define and call (nm)
    rooms.py names BUILD_DIR     external functions, and inline ones in headers, that do not begin with the name of
                                 their module

Prints what is wrong, a line each, and exits with 1 if anything is.
"""
import collections
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def tracked():
    """Sources of the product, from the root of the tree."""
    names = subprocess.run(['git', 'ls-files', '--cached', '--others', '--exclude-standard', '*.c', '*.h', '*.def'],
                           cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [n for n in names if not n.startswith(('tests/', 'docs/')) and os.path.exists(os.path.join(ROOT, n))]


def read(source):
    with open(os.path.join(ROOT, source), encoding='utf-8') as file:
        return file.read()


def code_of(source):
    """Its text without comments and strings."""
    return re.sub(r'/\*.*?\*/|"(\\.|[^"\\\n])*"', ' ', read(source), flags=re.S)


def read_rooms():
    """Room -> rooms that it may use. Errors: a line of the wrong form, an arrow that goes up."""
    rooms, errors = {}, []
    text = re.sub(r'#.*', '', open(os.path.join(ROOT, 'tests/rooms.txt'), encoding='utf-8').read())
    for line in re.sub(r'\n +', ' ', text).splitlines():
        if not line.strip():
            continue
        name, colon, uses = line.partition(':')
        if not colon or name in rooms:
            errors.append(f'rooms.txt: {name}: not "room: rooms", or named twice')
            continue
        errors += [f'rooms.txt: {name} uses {use}, which does not stand above it'
                   for use in uses.split() if use not in rooms]
        rooms[name] = set(uses.split()) & rooms.keys()
    return rooms, errors


def room_of(path):
    return os.path.dirname(path)


def public_functions(sources):
    """quire_ function -> the room that defines it: include/quire.h declares what many rooms define."""
    found = {}
    for source in sources:
        if source.endswith('.c'):
            for name in re.findall(r'^[a-z][\w *]*?\b(quire_\w+)\(', read(source), re.M):
                found[name] = room_of(source)
    return found


def check_includes():
    rooms, errors = read_rooms()
    sources = tracked()
    folders = {room_of(s) for s in sources if room_of(s) != 'include'}
    errors += [f'{f}: a folder of sources that rooms.txt does not name' for f in sorted(folders - rooms.keys())]
    errors += [f'{r}: named in rooms.txt, and has no sources' for r in sorted(rooms.keys() - folders)]
    public = public_functions(sources)
    used = collections.defaultdict(set)
    for source in sources:
        room = room_of(source)
        for number, line in enumerate(read(source).splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match or match[1] == 'quire.h':
                continue
            target = room_of(match[1])
            where = f'{source}:{number}: '
            if room == 'include':
                errors.append(where + f'a public header includes {match[1]}')
            elif target not in rooms:
                errors.append(where + f'{match[1]} is in no room')
            elif target != room and target not in rooms.get(room, ()):
                errors.append(where + f'{room} may not use {match[1]}')
            elif target != room and match[1].endswith('_priv.h'):
                errors.append(where + f'{match[1]} is private to {target}')
            used[room].add(target)
        names = re.findall(r'(?<!struct )(?<!enum )\bquire_\w+', code_of(source))
        used[room] |= {public[name] for name in names if name in public}
    errors += [f'rooms.txt: {room}: {use} is allowed and unused'
               for room, uses in rooms.items() for use in sorted(uses - used[room])]
    return errors


def check_readmes():
    """A README names a file by its whole name, by its stem between backticks, or as stem.{c,h}."""
    errors, texts = [], {}
    for source in tracked():
        room, stem = room_of(source), os.path.splitext(os.path.basename(source))[0]
        if room == 'include':
            continue
        if room not in texts:
            path = os.path.join(ROOT, room, 'README.md')
            texts[room] = open(path, encoding='utf-8').read() if os.path.exists(path) else ''
        if not re.search(r'\b' + re.escape(stem) + r'\.(c|h|def|\{)|`' + re.escape(stem) + '`', texts[room]):
            errors.append(f'{source}: {room}/README.md does not name it')
    return errors


def objects(build):
    """(source, lines of nm) of each object of the product."""
    sources = {}
    for folder, _, names in os.walk(os.path.join(build, 'CMakeFiles')):
        for name in names:
            path = os.path.join(folder, name)
            match = re.search(r'CMakeFiles/(?:quire_\w+|quire|quire-server|quire-gateway)\.dir/(.+)\.o$', path)
            if match and os.path.exists(os.path.join(ROOT, match[1])):
                sources[path] = match[1]
    out = subprocess.run(['nm', '-P', *sources], capture_output=True, text=True, check=True).stdout if sources else ''
    source, lines = None, []
    for line in out.splitlines():
        if line.endswith(':') and line[:-1] in sources:  # the symbols of this object follow
            if source:
                yield source, lines
            source, lines = sources[line[:-1]], []
        else:
            lines.append(line.split())
    if source:
        yield source, lines


def read_symbols(build):
    defined, called = {}, collections.defaultdict(set)
    for source, lines in objects(build):
        for name, kind, *_ in lines:
            if kind in 'TDBRVW':
                defined[name] = (source, kind)
            elif kind == 'U':
                called[source].add(name)
    return defined, called


def check_symbols(build):
    rooms, errors = read_rooms()
    defined, called = read_symbols(build)
    if len(defined) < 500:
        return [f'{build}: only {len(defined)} symbols found: is it built?']
    for source, names in sorted(called.items()):
        room = room_of(source)
        for name in sorted(names & defined.keys()):
            target = room_of(defined[name][0])
            if target != room and target not in rooms.get(room, ()):
                errors.append(f'{source}: {room} may not call {name} of {defined[name][0]}')
    return errors


def begins_with(name, path):
    """Whether a function's name begins with the first words of a file's name, in the singular or the plural:
    index/search/search_filter.c has search_filter_... and search_..., columns.c has column_... and columns_..."""
    def same(one, other):
        return one == other or one == other + 's' or one + 's' == other
    words, stem = name.split('_'), os.path.splitext(os.path.basename(path))[0].removesuffix('_priv').split('_')
    return same(words[0], stem[0])


def declaring_headers(sources):
    """Name -> headers that declare it."""
    found = collections.defaultdict(set)
    for source in sources:
        if source.endswith('.h'):
            text = read(source)
            for name in re.findall(r'\b([a-z]\w+)\(', text):
                found[name].add(source)
    return found


def check_names(build):
    errors = []
    defined, _ = read_symbols(build)
    if len(defined) < 500:
        return [f'{build}: only {len(defined)} symbols found: is it built?']
    headers = declaring_headers(tracked())
    for name, (source, kind) in sorted(defined.items(), key=lambda item: (item[1][0], item[0])):
        # the public API is quire_*; a program's own files have main, a module what its engine calls
        if kind != 'T' or name.startswith('quire_') or name in ('main', 'RedisModule_OnLoad') or any(
                begins_with(name, path) for path in {source} | {h for h in headers[name] if room_of(h) == room_of(source)}):
            continue
        errors.append(f'{source}: {name} does not begin with the name of its module')
    for header in tracked():
        if header.endswith('.h') and room_of(header) != 'include':
            names = re.findall(r'^static inline [^;{]*?\b(\w+)\([^;{]*\)\n\{', read(header), re.M)
            errors += [f'{header}: {name} does not begin with the name of its module'
                       for name in names if not begins_with(name, header)]
    return errors


def main(arguments):
    checks = {'includes': (1, check_includes), 'readmes': (1, check_readmes), 'symbols': (2, check_symbols), 'names': (2, check_names)}
    if not arguments or arguments[0] not in checks or len(arguments) != checks[arguments[0]][0]:
        print(__doc__, file=sys.stderr)
        return 2
    errors = checks[arguments[0]][1](*arguments[1:])
    for error in errors:
        print(error)
    return 1 if errors else 0


sys.exit(main(sys.argv[1:]))
