/*
 * guard_tables.c - the words that guards know, from text files: parsed once, looked up by hash.
 *
 * A file has one entry per line; '#' begins a comment. In antonyms.txt a line is `on, turn on | off, turn off`: words
 * and phrases of one side, a bar, those of the other. Everywhere else it is `section: word, word` or
 * `section: canonical = word, word`, where the section says what the words mean. In a phrase "~" stands for up to four
 * words ("turn ~ on"). A word written in capitals is meant in capitals only ("US").
 *
 * All words and phrases lie in one table with open addressing; a word may have several meanings ("second" is an ordinal
 * and a unit), kept as a list. The first word of a phrase remembers how long its phrases get, so that a token that
 * begins none costs one look-up. The files of a folder are added to those built in and never replace them: a guard
 * that a user's file has weakened by accident would serve wrong answers silently. Whoever wants a guard off says so in
 * the category.
 *
 * After loading nothing is written any more, so any number of threads may read.
 */
#include "cache/guard/guard_priv.h"
#include "io/array.h"
#include "io/error.h"
#include "io/fs.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#define FILE_BYTES_MAX (4u << 20)
#define NO_WORD        UINT32_MAX

struct section {
    const char *file, *name;
    enum guard_meaning_kind kind;
    bool number; /* the canonical word is a number, and no word */
};

/* "*": any name of two letters, a language. */
static const struct section sections[] = {
    {"negations.txt", "not", MEANS_NOT, false},        {"negations.txt", "except", MEANS_EXCEPT, false},
    {"negations.txt", "*", MEANS_NOT, false},          {"units.txt", "currency", MEANS_CURRENCY, false},
    {"units.txt", "degree", MEANS_DEGREE, false},      {"units.txt", "unit", MEANS_UNIT, false},
    {"numbers.txt", "cardinal", MEANS_CARDINAL, true}, {"numbers.txt", "ordinal", MEANS_ORDINAL, true},
    {"numbers.txt", "scale", MEANS_SCALE, true},       {"numbers.txt", "fraction", MEANS_FRACTION, true},
    {"dates.txt", "month", MEANS_MONTH, true},         {"dates.txt", "month-in-company", MEANS_MONTH_LIKE, true},
    {"dates.txt", "weekday", MEANS_WEEKDAY, false},    {"dates.txt", "day", MEANS_DAY, false},
    {"dates.txt", "part", MEANS_PART, false},          {"dates.txt", "period", MEANS_PERIOD, false},
    {"dates.txt", "season", MEANS_SEASON, false},      {"dates.txt", "season-in-company", MEANS_SEASON_LIKE, false},
    {"dates.txt", "clock", MEANS_CLOCK, true},         {"names.txt", "name", MEANS_NAME, false},
    {"names.txt", "optional", MEANS_OPTIONAL, false},  {"names.txt", "ordinary", MEANS_ORDINARY, false},
    {"stopwords.txt", "*", MEANS_STOPWORD, false},     {"directions.txt", "between", MEANS_BETWEEN, false},
    {"directions.txt", "turns", MEANS_TURNS, false},
};

/* Where a line stands, for messages. */
struct place {
    struct guard_tables *tables;
    const char *path, *file;
    unsigned line;
    struct quire_error *err;
};

static int complain(const struct place *at, const char *what, struct quire_bytes word)
{
    return error_set(at->err, QUIRE_EPARSE, "%s, line %u: %s: \"%.*s\"", at->path, at->line, what,
                     (int)(word.n_bytes < 60 ? word.n_bytes : 60), (const char *)word.data);
}

static uint32_t hash_of(const void *key, size_t bytes)
{
    return (uint32_t)XXH3_64bits(key, bytes);
}

static uint32_t slot_of(const struct guard_tables *tables, const void *key, size_t bytes, uint32_t hash)
{
    uint32_t i = hash & (tables->n_slots - 1);
    while (tables->slots[i].key_bytes && (tables->slots[i].hash != hash || tables->slots[i].key_bytes != bytes ||
                                          memcmp(tables->bytes + tables->slots[i].key, key, bytes) != 0))
        i = (i + 1) & (tables->n_slots - 1);
    return i;
}

const struct guard_word *guard_lookup(const struct guard_tables *tables, const void *key, size_t bytes)
{
    if (bytes == 0 || bytes > GUARD_KEY_BYTES)
        return NULL;
    const struct guard_word *word = &tables->slots[slot_of(tables, key, bytes, hash_of(key, bytes))];
    return word->key_bytes ? word : NULL;
}

const struct guard_meaning *guard_means(const struct guard_tables *tables, const struct guard_word *word,
                                        enum guard_meaning_kind kind)
{
    if (!word || !(word->kinds & 1u << kind))
        return NULL;
    for (uint32_t i = word->meanings; i != 0; i = tables->meanings[i].next)
        if (tables->meanings[i].kind == kind)
            return &tables->meanings[i];
    return NULL;
}

static int grow_slots(struct guard_tables *tables)
{
    uint32_t n = tables->n_slots ? 2 * tables->n_slots : 8192;
    struct guard_tables larger = {.bytes = tables->bytes, .n_slots = n, .slots = calloc(n, sizeof *larger.slots)};
    if (!larger.slots)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < tables->n_slots; i++) {
        const struct guard_word *word = &tables->slots[i];
        if (word->key_bytes)
            larger.slots[slot_of(&larger, tables->bytes + word->key, word->key_bytes, word->hash)] = *word;
    }
    free(tables->slots);
    tables->slots = larger.slots;
    tables->n_slots = n;
    return 0;
}

/* Copies bytes to the end of the tables' own; their offset, or NO_WORD. */
static uint32_t keep(struct guard_tables *tables, const void *data, size_t bytes)
{
    if (!array_reserve(&tables->bytes, &tables->bytes_capacity, tables->n_bytes + bytes))
        return NO_WORD;
    memcpy(tables->bytes + tables->n_bytes, data, bytes);
    tables->n_bytes += (uint32_t)bytes;
    return tables->n_bytes - (uint32_t)bytes;
}

/* The slot of a word, which is made where it is new; NO_WORD: no memory. */
static uint32_t intern(struct guard_tables *tables, const void *key, size_t bytes)
{
    if (tables->n_words * 2 >= tables->n_slots && grow_slots(tables) < 0)
        return NO_WORD;
    uint32_t hash = hash_of(key, bytes), i = slot_of(tables, key, bytes, hash);
    if (tables->slots[i].key_bytes)
        return i;
    uint32_t at = keep(tables, key, bytes);
    if (at == NO_WORD)
        return NO_WORD;
    assert(bytes > 0 && bytes <= GUARD_KEY_BYTES);
    tables->slots[i] = (struct guard_word){.key = at, .hash = hash, .key_bytes = (uint8_t)bytes};
    tables->n_words++;
    return i;
}

/* Gives a word or phrase a meaning. */
static int mean(struct guard_tables *tables, struct quire_bytes key, enum guard_meaning_kind kind,
                struct quire_bytes text, double value)
{
    const char *bytes = key.data;
    uint32_t words = 1;
    size_t first = key.n_bytes;
    for (size_t i = 0; i < key.n_bytes; i++) {
        words += bytes[i] == ' ';
        if (bytes[i] == ' ' && first == key.n_bytes)
            first = i;
    }
    if (words > 1) {
        uint32_t head = intern(tables, bytes, first);
        if (head == NO_WORD)
            return QUIRE_ENOMEM;
        struct guard_word *word = &tables->slots[head];
        word->begins |= 1u << kind;
        if (memchr(bytes, '~', key.n_bytes))
            word->gap = 1;
        else if (word->phrase_words < words)
            word->phrase_words = (uint8_t)words;
    }
    uint32_t slot = intern(tables, key.data, key.n_bytes);
    uint32_t at = keep(tables, text.data, text.n_bytes);
    if (slot == NO_WORD || at == NO_WORD ||
        !array_reserve(&tables->meanings, &tables->meanings_capacity, tables->n_meanings + (size_t)2))
        return QUIRE_ENOMEM;
    tables->meanings[++tables->n_meanings] = (struct guard_meaning){.value = value,
                                                                    .next = tables->slots[slot].meanings,
                                                                    .text = at,
                                                                    .text_bytes = (uint8_t)text.n_bytes,
                                                                    .kind = (uint8_t)kind};
    tables->slots[slot].meanings = tables->n_meanings;
    tables->slots[slot].kinds |= 1u << kind;
    return 0;
}

static struct quire_bytes trim(struct quire_bytes text)
{
    const char *at = text.data;
    while (text.n_bytes && strchr(" \t\r", at[0]) && at[0])
        at++, text.n_bytes--;
    while (text.n_bytes && strchr(" \t\r", at[text.n_bytes - 1]) && at[text.n_bytes - 1])
        text.n_bytes--;
    return (struct quire_bytes){at, text.n_bytes};
}

/* What stands before the separator; *rest becomes what stands behind it. false: it is not there. */
static bool cut(struct quire_bytes *rest, char separator, struct quire_bytes *before)
{
    const char *at = rest->n_bytes ? memchr(rest->data, separator, rest->n_bytes) : NULL;
    if (!at)
        return false;
    size_t bytes = (size_t)(at - (const char *)rest->data);
    *before = trim((struct quire_bytes){rest->data, bytes});
    *rest = trim((struct quire_bytes){at + 1, rest->n_bytes - bytes - 1});
    return true;
}

static int check_word(const struct place *at, struct quire_bytes word)
{
    const char *bytes = word.data;
    unsigned words = 1;
    if (word.n_bytes == 0)
        return complain(at, "a word is missing", word);
    if (word.n_bytes > GUARD_KEY_BYTES)
        return complain(at, "a word or phrase has at most 48 bytes", word);
    for (size_t i = 0; i < word.n_bytes; i++) {
        if (bytes[i] == ' ' && bytes[i + 1] == ' ')
            return complain(at, "one blank between two words, please", word);
        if ((unsigned char)bytes[i] < ' ' || strchr("|=:", bytes[i]))
            return complain(at, "a word may not hold control bytes or any of |=:", word);
        words += bytes[i] == ' ';
    }
    if (words > GUARD_PHRASE_WORDS)
        return complain(at, "a phrase has at most 4 words", word);
    const char *gap = memchr(bytes, '~', word.n_bytes);
    if (gap && (words != 3 || gap == bytes || gap[-1] != ' ' || gap[1] != ' '))
        return complain(at, "\"~\" stands between two words: turn ~ on", word);
    return 0;
}

/* Each word of a list with commas gets the meaning. text.data NULL: its own text. */
static int mean_list(const struct place *at, struct quire_bytes list, enum guard_meaning_kind kind,
                     struct quire_bytes text, double value)
{
    for (bool more = true; more;) {
        struct quire_bytes word = list;
        more = cut(&list, ',', &word);
        int rc = check_word(at, word);
        if (rc == 0 && mean(at->tables, word, kind, text.data ? text : word, value) < 0)
            rc = error_set(at->err, QUIRE_ENOMEM, "no memory for the tables of the guards");
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int parse_number(const struct place *at, struct quire_bytes text, double *out)
{
    char copy[32], *end;
    if (text.n_bytes == 0 || text.n_bytes >= sizeof copy)
        return complain(at, "a number is expected before \"=\"", text);
    memcpy(copy, text.data, text.n_bytes);
    copy[text.n_bytes] = 0;
    *out = strtod(copy, &end);
    if (*end || !(*out >= 0 && *out <= 1e15))
        return complain(at, "a number from 0 to 1e15 is expected before \"=\"", text);
    return 0;
}

static int parse_line(const struct place *at, struct quire_bytes line)
{
    struct quire_bytes name, list = line, canonical = {NULL, 0};
    double value = 0;
    int rc;
    if (strcmp(at->file, "antonyms.txt") == 0) {
        struct quire_bytes left, right = line, rest, firsts[2];
        char names[2 * GUARD_KEY_BYTES + 2];
        if (!cut(&right, '|', &left) || memchr(right.data, '|', right.n_bytes))
            return complain(at, "two sides and one bar are expected: on, turn on | off, turn off", line);
        rest = left;
        if (!cut(&rest, ',', &firsts[0]))
            firsts[0] = left;
        rest = right;
        if (!cut(&rest, ',', &firsts[1]))
            firsts[1] = right;
        for (unsigned i = 0; i < 2; i++) {
            rc = check_word(at, firsts[i]);
            if (rc < 0)
                return rc;
            if (firsts[i].n_bytes > 20 || memchr(firsts[i].data, '/', firsts[i].n_bytes))
                return complain(at, "the first word of a side names it: at most 20 bytes and no \"/\"", firsts[i]);
        }
        int bytes = snprintf(names, sizeof names, "%.*s/%.*s", (int)firsts[0].n_bytes, (const char *)firsts[0].data,
                             (int)firsts[1].n_bytes, (const char *)firsts[1].data);
        struct quire_bytes text = {names, (size_t)bytes};
        rc = mean_list(at, left, MEANS_PAIR, text, 0);
        return rc < 0 ? rc : mean_list(at, right, MEANS_PAIR, text, 1);
    }
    if (!cut(&list, ':', &name))
        return complain(at, "\"section: word, word\" is expected", line);
    const struct section *section = NULL;
    for (unsigned i = 0; i < sizeof sections / sizeof *sections && !section; i++)
        if (strcmp(sections[i].file, at->file) == 0 &&
            (text_equal(text_of(sections[i].name), name) || (sections[i].name[0] == '*' && name.n_bytes == 2)))
            section = &sections[i];
    if (!section)
        return complain(at, "this file has no such section", name);
    bool has_canonical = cut(&list, '=', &canonical);
    if (section->number) {
        if (!has_canonical)
            return complain(at, "\"section: number = word, word\" is expected", line);
        rc = parse_number(at, canonical, &value);
        return rc < 0 ? rc : mean_list(at, list, section->kind, canonical, value);
    }
    if (section->kind == MEANS_STOPWORD || section->kind == MEANS_NOT)
        return mean_list(at, list, section->kind, name, 0);
    if (has_canonical && (rc = mean_list(at, canonical, section->kind, canonical, 0)) < 0)
        return rc;
    return mean_list(at, list, section->kind, canonical, 0);
}

static int parse_file(struct place at, const void *data, size_t n_bytes)
{
    struct quire_bytes rest = {data, n_bytes}, line;
    for (bool more = true; more;) {
        const char *end = rest.n_bytes ? memchr(rest.data, '\n', rest.n_bytes) : NULL;
        size_t bytes = end ? (size_t)(end - (const char *)rest.data) : rest.n_bytes;
        const char *text = rest.data;
        size_t kept = 0; /* a '#' begins a comment at the begin of a line and after a blank */
        while (kept < bytes && !(text[kept] == '#' && (kept == 0 || text[kept - 1] == ' ' || text[kept - 1] == '\t')))
            kept++;
        line = trim((struct quire_bytes){text, kept});
        at.line++;
        int rc = line.n_bytes ? parse_line(&at, line) : 0;
        if (rc < 0)
            return rc;
        more = end != NULL;
        if (more)
            rest = (struct quire_bytes){end + 1, rest.n_bytes - bytes - 1};
    }
    return 0;
}

struct folder_scan {
    const char *folder;
    struct quire_error *err;
    bool found[16];
};

static int visit_file(void *context, const char *name)
{
    struct folder_scan *scan = context;
    size_t bytes = strlen(name);
    for (unsigned i = 0; i < guard_files_n; i++)
        if (strcmp(guard_files[i].name, name) == 0) {
            scan->found[i] = true;
            return 0;
        }
    if (bytes > 4 && strcmp(name + bytes - 4, ".txt") == 0)
        return error_set(scan->err, QUIRE_EPARSE,
                         "%s/%s is no table of the guards; there are antonyms, dates, directions, names, negations, "
                         "numbers, stopwords and units (.txt): rename it or take it away",
                         scan->folder, name);
    return 0;
}

/* Adds a file of the user's. */
static int add_file(struct guard_tables *tables, const char *folder, const char *name, struct quire_error *err)
{
    struct io_file *file = NULL;
    char *path = malloc(strlen(folder) + strlen(name) + 2), *data = NULL;
    int rc = error_set(err, QUIRE_ENOMEM, "no memory for the tables of the guards");
    if (!path)
        return rc;
    sprintf(path, "%s/%s", folder, name);
    if ((rc = fs_open(fs_real(), path, FS_READ, &file, err)) < 0)
        goto out;
    if (file->bytes > FILE_BYTES_MAX) {
        rc = error_set(err, QUIRE_ELIMIT, "%s has %llu bytes; a table of the guards may have %u", path,
                       (unsigned long long)file->bytes, FILE_BYTES_MAX);
        goto out;
    }
    data = malloc(file->bytes + 1);
    if (!data) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %s", path);
        goto out;
    }
    if ((rc = fs_read_exact(file, data, file->bytes, 0, err)) < 0)
        goto out;
    rc = parse_file((struct place){.tables = tables, .path = path, .file = name, .err = err}, data, file->bytes);
out:
    fs_close(file);
    free(data);
    free(path);
    return rc;
}

static int add_folder(struct guard_tables *tables, const char *folder, struct quire_error *err)
{
    struct folder_scan scan = {.folder = folder, .err = err};
    struct io_fs *fs = fs_real();
    int rc = fs->ops->list(fs, folder, visit_file, &scan);
    if (rc < 0 && rc != QUIRE_EPARSE)
        return error_set(err, rc, "the folder of guard tables %s cannot be listed", folder);
    for (unsigned i = 0; i < guard_files_n && rc >= 0; i++)
        rc = scan.found[i] ? add_file(tables, folder, guard_files[i].name, err) : 0;
    return rc;
}

int guard_tables_load(const char *folder, struct guard_tables **out, struct quire_error *err)
{
    struct guard_tables *tables = calloc(1, sizeof *tables);
    int rc = 0;
    if (!tables || grow_slots(tables) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the tables of the guards");
    for (unsigned i = 0; i < guard_files_n && rc == 0; i++) {
        const struct guard_file *file = &guard_files[i];
        rc = parse_file((struct place){.tables = tables, .path = file->name, .file = file->name, .err = err},
                        file->data, file->n_bytes);
    }
    if (rc == 0 && folder)
        rc = add_folder(tables, folder, err);
    if (rc < 0) {
        guard_tables_free(tables);
        return rc;
    }
    *out = tables;
    return 0;
}

void guard_tables_free(struct guard_tables *tables)
{
    if (!tables)
        return;
    free(tables->slots);
    free(tables->meanings);
    free(tables->bytes);
    free(tables);
}
