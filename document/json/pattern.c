/*
 * pattern.c - a pattern becomes a program of steps, and a text is run through all of its branches at once (Thompson
 * 1968).
 *
 * The C library's regcomp was here before: "a++++++" takes memory without end there, and the states that its regexec
 * keeps grow with the texts. Here nothing is kept: a set of places in the program moves over the text byte by byte.
 *
 * Two passes: the text becomes a tree of parts (parse_...), the tree becomes steps (emit_...), repetitions written out.
 * The steps are counted while they are written, so that a pattern which would be too large ends there. Characters
 * beyond ASCII are sequences of bytes: `.` and negated sets have branches for those of two, three and four bytes.
 */
#include "document/json/pattern.h"
#include "io/error.h"
#include <assert.h>
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    PARTS_MAX = 8 * PATTERN_BYTES_MAX,
    SETS_MAX = 4 * PATTERN_BYTES_MAX,
    DEPTH_MAX = 64, /* of groups */
    ENDLESS = UINT16_MAX
};

struct byte_set {
    uint64_t bits[4];
};

enum step_kind { STEP_SET, STEP_SPLIT, STEP_JUMP, STEP_BEGIN, STEP_END, STEP_EDGE, STEP_NO_EDGE, STEP_FOUND };

struct step {
    uint8_t kind;
    uint16_t a, b; /* SET: the set; SPLIT: both ways; JUMP: where to */
};

struct pattern {
    uint16_t n_steps, n_sets;
    struct step steps[PATTERN_STEPS_MAX];
    struct byte_set sets[];
};

enum part_kind { PART_EMPTY, PART_SET, PART_SEQUENCE, PART_CHOICE, PART_REPEAT, PART_PLACE };

struct part {
    uint8_t kind;
    uint8_t place;        /* PLACE: a step_kind */
    uint16_t a, b;        /* SET: the set; SEQUENCE, CHOICE: parts; REPEAT: a part */
    uint16_t least, most; /* REPEAT; most ENDLESS: any number */
};

struct compiler {
    const char *from, *at, *end;
    unsigned depth;
    bool no_case;
    uint16_t n_parts, n_sets, n_steps;
    struct quire_error *err;
    struct part parts[PARTS_MAX];
    struct byte_set sets[SETS_MAX];
    struct step steps[PATTERN_STEPS_MAX];
};

/* ---- sets -------------------------------------------------------------------------------------------------------- */

static void set_add(struct byte_set *set, unsigned c)
{
    set->bits[c / 64] |= 1ull << c % 64;
}

static bool set_has(const struct byte_set *set, unsigned c)
{
    return set->bits[c / 64] >> c % 64 & 1;
}

static void set_add_range(struct byte_set *set, unsigned first, unsigned last)
{
    for (unsigned c = first; c <= last; c++)
        set_add(set, c);
}

/* Of the letter behind a backslash, in lower case; false: it stands for none. */
static bool set_of_class(char letter, struct byte_set *out)
{
    *out = (struct byte_set){{0}};
    for (unsigned c = 0; c < 0x80; c++)
        if (letter == 'd' ? isdigit((int)c) : letter == 's' ? isspace((int)c) : isalnum((int)c) || c == '_')
            set_add(out, c);
    return letter == 'd' || letter == 's' || letter == 'w';
}

static void set_both_cases(struct byte_set *set)
{
    for (unsigned c = 'a'; c <= 'z'; c++) {
        unsigned upper = c - 'a' + 'A';
        if (set_has(set, c) || set_has(set, upper)) {
            set_add(set, c);
            set_add(set, upper);
        }
    }
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* The number of a new part; 0, which is the empty one, where there is no space: c->err says so. */
static uint16_t add_part(struct compiler *c, struct part part)
{
    assert(c->n_parts > 0);
    if (c->n_parts == PARTS_MAX) {
        error_set(c->err, QUIRE_ELIMIT, "the pattern has more than %u parts: make it shorter", (unsigned)PARTS_MAX);
        return 0;
    }
    c->parts[c->n_parts] = part;
    return c->n_parts++;
}

static uint16_t add_set(struct compiler *c, struct byte_set set)
{
    if (c->n_sets == SETS_MAX) {
        error_set(c->err, QUIRE_ELIMIT, "the pattern has more than %u sets: make it shorter", (unsigned)SETS_MAX);
        return 0;
    }
    c->sets[c->n_sets] = set;
    return add_part(c, (struct part){.kind = PART_SET, .a = c->n_sets++});
}

static uint16_t add_range(struct compiler *c, unsigned first, unsigned last)
{
    struct byte_set set = {{0}};
    set_add_range(&set, first, last);
    return add_set(c, set);
}

static uint16_t add_pair(struct compiler *c, enum part_kind kind, uint16_t a, uint16_t b)
{
    return add_part(c, (struct part){.kind = (uint8_t)kind, .a = a, .b = b});
}

/* Any character beyond ASCII: two to four bytes. Text is UTF-8, so that their first byte tells all. */
static uint16_t add_beyond_ascii(struct compiler *c)
{
    uint16_t rest = add_range(c, 0x80, 0xbf), two = add_pair(c, PART_SEQUENCE, rest, rest);
    uint16_t of_two = add_pair(c, PART_SEQUENCE, add_range(c, 0xc2, 0xdf), rest);
    uint16_t of_three = add_pair(c, PART_SEQUENCE, add_range(c, 0xe0, 0xef), two);
    uint16_t of_four = add_pair(c, PART_SEQUENCE, add_range(c, 0xf0, 0xf4), add_pair(c, PART_SEQUENCE, two, rest));
    return add_pair(c, PART_CHOICE, of_two, add_pair(c, PART_CHOICE, of_three, of_four));
}

/* Any character that is not in the set, which holds ASCII alone. */
static uint16_t add_negated(struct compiler *c, const struct byte_set *set)
{
    struct byte_set others = {{~set->bits[0], ~set->bits[1], 0, 0}};
    return add_pair(c, PART_CHOICE, add_set(c, others), add_beyond_ascii(c));
}

static int wrong(const struct compiler *c, const char *what)
{
    return error_set(c->err, QUIRE_EPARSE, "the pattern at its byte %d: %s", (int)(c->at - c->from), what);
}

/* One character beyond ASCII, at c->at: its bytes one after the other. */
static uint16_t parse_beyond_ascii(struct compiler *c)
{
    uint16_t part = add_range(c, (unsigned char)*c->at, (unsigned char)*c->at);
    for (c->at++; c->at < c->end && ((unsigned char)*c->at & 0xc0) == 0x80; c->at++)
        part = add_pair(c, PART_SEQUENCE, part, add_range(c, (unsigned char)*c->at, (unsigned char)*c->at));
    return part;
}

static uint16_t add_literal(struct compiler *c, unsigned letter)
{
    struct byte_set set = {{0}};
    set_add(&set, letter);
    if (c->no_case)
        set_both_cases(&set);
    return add_set(c, set);
}

/* The character that a letter behind a backslash stands for; -1: none. */
static int escaped(char letter)
{
    switch (letter) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    default:
        return isalnum((unsigned char)letter) || (unsigned char)letter >= 0x80 ? -1 : letter;
    }
}

/* Behind a backslash. */
static int parse_escape(struct compiler *c, uint16_t *out)
{
    struct byte_set set;
    if (c->at == c->end)
        return wrong(c, "it ends with a backslash");
    char letter = *c->at++;
    if (letter == 'b' || letter == 'B') {
        *out = add_part(c, (struct part){.kind = PART_PLACE, .place = letter == 'b' ? STEP_EDGE : STEP_NO_EDGE});
    } else if (set_of_class((char)tolower((unsigned char)letter), &set)) {
        *out = isupper((unsigned char)letter) ? add_negated(c, &set) : add_set(c, set);
    } else if (escaped(letter) >= 0) {
        *out = add_literal(c, (unsigned)escaped(letter));
    } else {
        c->at--;
        return wrong(c, "what stands behind the backslash is not understood");
    }
    return 0;
}

/* A character of a set, or a class, which is added to it; *last: the character, -1: none that begins a range. */
static int parse_set_item(struct compiler *c, struct byte_set *set, int *last)
{
    static const struct {
        const char *name;
        int (*is)(int letter);
    } classes[] = {{"[:alpha:]", isalpha}, {"[:digit:]", isdigit}, {"[:alnum:]", isalnum}, {"[:space:]", isspace},
                   {"[:upper:]", isupper}, {"[:lower:]", islower}, {"[:punct:]", ispunct}, {"[:xdigit:]", isxdigit}};
    struct byte_set more;
    *last = -1;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        size_t n = strlen(classes[i].name);
        if ((size_t)(c->end - c->at) < n || memcmp(c->at, classes[i].name, n) != 0)
            continue;
        for (int letter = 0; letter < 0x80; letter++)
            if (classes[i].is(letter))
                set_add(set, (unsigned)letter);
        c->at += n;
        return 0;
    }
    char letter = *c->at++;
    if (letter != '\\') {
        *last = (unsigned char)letter;
    } else if (c->at == c->end) {
        return wrong(c, "it ends with a backslash");
    } else if (set_of_class(*c->at, &more)) {
        for (unsigned i = 0; i < 4; i++)
            set->bits[i] |= more.bits[i];
        c->at++;
    } else if (escaped(*c->at) >= 0) {
        *last = escaped(*c->at++);
    } else {
        return wrong(c, "what stands behind the backslash is not understood in a set");
    }
    if (*last >= 0)
        set_add(set, (unsigned)*last);
    return 0;
}

/* Behind an opening bracket. */
static int parse_set(struct compiler *c, uint16_t *out)
{
    struct byte_set set = {{0}};
    uint16_t others = 0; /* characters beyond ASCII */
    bool negated = c->at < c->end && *c->at == '^', first = true;
    int rc = 0, last, to;
    c->at += negated;
    for (; rc == 0 && c->at < c->end && (first || *c->at != ']'); first = false) {
        if ((unsigned char)*c->at >= 0x80) {
            if (negated)
                return wrong(c, "a set that begins with ^ holds characters of ASCII alone");
            uint16_t part = parse_beyond_ascii(c);
            others = others ? add_pair(c, PART_CHOICE, others, part) : part;
            continue;
        }
        rc = parse_set_item(c, &set, &last);
        if (rc < 0 || last < 0 || c->end - c->at < 2 || *c->at != '-' || c->at[1] == ']')
            continue;
        c->at++;
        if ((unsigned char)*c->at >= 0x80)
            return wrong(c, "a range is one of characters of ASCII");
        rc = parse_set_item(c, &set, &to);
        if (rc == 0 && to < last)
            return wrong(c, "a range ends where it begins, or behind that");
        if (rc == 0)
            set_add_range(&set, (unsigned)last, (unsigned)to);
    }
    if (rc == 0 && c->at == c->end)
        return wrong(c, "a set ends with ]");
    if (rc < 0)
        return rc;
    c->at++;
    if (c->no_case)
        set_both_cases(&set);
    *out = negated ? add_negated(c, &set) : add_set(c, set);
    if (others)
        *out = add_pair(c, PART_CHOICE, *out, others);
    return 0;
}

static int parse_choice(struct compiler *c, uint16_t *out);

/* Behind an opening parenthesis. */
static int parse_group(struct compiler *c, uint16_t *out)
{
    if (c->end - c->at >= 2 && c->at[0] == '?' && c->at[1] == ':')
        c->at += 2;
    else if (c->at < c->end && *c->at == '?')
        return wrong(c, "(? is not understood: (?i) stands in front of all, (?: begins a group");
    if (++c->depth > DEPTH_MAX)
        return error_set(c->err, QUIRE_ELIMIT, "a pattern has at most %u levels of groups", (unsigned)DEPTH_MAX);
    int rc = parse_choice(c, out);
    c->depth--;
    if (rc == 0 && c->err->code == 0 && (c->at == c->end || *c->at != ')'))
        return wrong(c, "a group ends with )");
    c->at += rc == 0 && c->at < c->end;
    return rc;
}

static int parse_atom(struct compiler *c, uint16_t *out)
{
    static const struct byte_set line_feed = {{1ull << '\n', 0, 0, 0}};
    if ((unsigned char)*c->at >= 0x80) {
        *out = parse_beyond_ascii(c);
        return 0;
    }
    char letter = *c->at++;
    switch (letter) {
    case '(':
        return parse_group(c, out);
    case '[':
        return parse_set(c, out);
    case '\\':
        return parse_escape(c, out);
    case '.':
        *out = add_negated(c, &line_feed);
        return 0;
    case '^':
    case '$':
        *out = add_part(c, (struct part){.kind = PART_PLACE, .place = letter == '^' ? STEP_BEGIN : STEP_END});
        return 0;
    case '*':
    case '+':
    case '?':
    case '{':
        c->at--;
        return wrong(c, "there is nothing to repeat; a backslash in front makes it a character");
    default:
        *out = add_literal(c, (unsigned char)letter);
        return 0;
    }
}

static bool take_number(struct compiler *c, uint16_t *out)
{
    unsigned number = 0;
    const char *from = c->at;
    for (; c->at < c->end && isdigit((unsigned char)*c->at); c->at++)
        number = number > PATTERN_STEPS_MAX ? number : 10 * number + (unsigned)(*c->at - '0');
    *out = (uint16_t)(number > PATTERN_STEPS_MAX ? PATTERN_STEPS_MAX + 1 : number);
    return c->at > from;
}

/* *part is repeated where a repetition follows. */
static int parse_repeat(struct compiler *c, uint16_t *part)
{
    struct part repeat = {.kind = PART_REPEAT, .a = *part, .most = ENDLESS};
    char letter = c->at < c->end ? *c->at : 0;
    if (letter != '*' && letter != '+' && letter != '?' && letter != '{')
        return 0;
    c->at++;
    repeat.least = letter == '+';
    if (letter == '?')
        repeat.most = 1;
    if (letter == '{') {
        bool right = take_number(c, &repeat.least);
        repeat.most = repeat.least;
        if (right && c->at < c->end && *c->at == ',') {
            c->at++;
            repeat.most = ENDLESS;
            if (c->at < c->end && *c->at != '}')
                right = take_number(c, &repeat.most) && repeat.most >= repeat.least;
        }
        if (!right || c->at == c->end || *c->at != '}')
            return wrong(c, "a repetition is {n}, {n,} or {n,m}");
        c->at++;
    }
    if (c->at < c->end && *c->at == '?') /* as few as possible: the same to be found */
        c->at++;
    *part = add_part(c, repeat);
    return parse_repeat(c, part);
}

static int parse_sequence(struct compiler *c, uint16_t *out)
{
    int rc = 0;
    *out = 0;
    while (rc == 0 && c->err->code == 0 && c->at < c->end && *c->at != '|' && *c->at != ')') {
        uint16_t part = 0;
        rc = parse_atom(c, &part);
        if (rc == 0)
            rc = parse_repeat(c, &part);
        if (rc == 0)
            *out = *out ? add_pair(c, PART_SEQUENCE, *out, part) : part;
    }
    return rc;
}

static int parse_choice(struct compiler *c, uint16_t *out)
{
    int rc = parse_sequence(c, out);
    while (rc == 0 && c->at < c->end && *c->at == '|') {
        uint16_t other;
        c->at++;
        rc = parse_sequence(c, &other);
        *out = add_pair(c, PART_CHOICE, *out, other);
    }
    return rc;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* The number of a new step; after the last one that may be, of the last again, and the error is set. */
static uint16_t add_step(struct compiler *c, enum step_kind kind, uint16_t a)
{
    if (c->n_steps == PATTERN_STEPS_MAX) {
        if (c->err->code == 0)
            error_set(c->err, QUIRE_ELIMIT,
                      "the pattern with its repetitions written out has more than %u steps: repeat less",
                      PATTERN_STEPS_MAX);
        return PATTERN_STEPS_MAX - 1;
    }
    c->steps[c->n_steps] = (struct step){.kind = (uint8_t)kind, .a = a};
    return c->n_steps++;
}

static void emit(struct compiler *c, uint16_t number)
{
    const struct part *part = &c->parts[number];
    uint16_t split, jump;
    if (c->err->code < 0)
        return;
    switch ((enum part_kind)part->kind) {
    case PART_EMPTY:
        break;
    case PART_SET:
        add_step(c, STEP_SET, part->a);
        break;
    case PART_PLACE:
        add_step(c, (enum step_kind)part->place, 0);
        break;
    case PART_SEQUENCE:
        emit(c, part->a);
        emit(c, part->b);
        break;
    case PART_CHOICE:
        split = add_step(c, STEP_SPLIT, (uint16_t)(c->n_steps + 1));
        emit(c, part->a);
        jump = add_step(c, STEP_JUMP, 0);
        c->steps[split].b = c->n_steps;
        emit(c, part->b);
        c->steps[jump].a = c->n_steps;
        break;
    case PART_REPEAT:
        for (unsigned i = 0; i < part->least && c->err->code == 0; i++)
            emit(c, part->a);
        if (part->most == ENDLESS) {
            split = add_step(c, STEP_SPLIT, (uint16_t)(c->n_steps + 1));
            emit(c, part->a);
            add_step(c, STEP_JUMP, split);
            c->steps[split].b = c->n_steps;
            break;
        }
        for (unsigned i = part->least; i < part->most && c->err->code == 0; i++) {
            split = add_step(c, STEP_SPLIT, (uint16_t)(c->n_steps + 1));
            emit(c, part->a);
            c->steps[split].b = c->n_steps;
        }
        break;
    }
}

static int compile(struct compiler *c)
{
    uint16_t all;
    c->n_parts = 1; /* the empty one */
    int rc = parse_choice(c, &all);
    if (rc < 0 || c->err->code < 0) /* too many parts */
        return c->err->code;
    if (c->at < c->end)
        return wrong(c, ") closes no group");
    emit(c, all);
    if (c->err->code == 0)
        add_step(c, STEP_FOUND, 0);
    return c->err->code;
}

int pattern_compile(const char *text, size_t bytes, struct pattern **out, struct quire_error *err)
{
    struct quire_error own = {0};
    struct pattern *pattern = NULL;
    if (bytes > PATTERN_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "a pattern has at most %u bytes, this one has %zu", PATTERN_BYTES_MAX,
                         bytes);
    struct compiler *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(err, QUIRE_ENOMEM, "no memory for a pattern");
    c->from = c->at = text;
    c->end = text + bytes;
    c->err = &own;
    c->no_case = bytes >= 4 && memcmp(text, "(?i)", 4) == 0;
    c->at += c->no_case ? 4 : 0;
    int rc = compile(c);
    if (rc == 0 && !(pattern = malloc(sizeof *pattern + c->n_sets * sizeof *pattern->sets)))
        rc = error_set(&own, QUIRE_ENOMEM, "no memory for a pattern");
    if (rc < 0 && err)
        *err = own;
    if (rc == 0) {
        pattern->n_steps = c->n_steps;
        pattern->n_sets = c->n_sets;
        memcpy(pattern->steps, c->steps, c->n_steps * sizeof *c->steps);
        memcpy(pattern->sets, c->sets, c->n_sets * sizeof *c->sets);
        *out = pattern;
    }
    free(c);
    return rc;
}

void pattern_free(struct pattern *pattern)
{
    free(pattern);
}

size_t pattern_steps(const struct pattern *pattern)
{
    return pattern->n_steps;
}

/* ---- searching --------------------------------------------------------------------------------------------------- */

/* Places in the program that wait for the next byte. */
struct places {
    uint16_t n, items[PATTERN_STEPS_MAX];
};

struct search {
    const struct pattern *pattern;
    const unsigned char *text;
    size_t bytes, at;
    uint32_t turn;                         /* of the byte at `at` */
    uint32_t seen[PATTERN_STEPS_MAX];      /* the turn in which a step was reached */
    uint16_t stack[PATTERN_STEPS_MAX + 1]; /* steps that are still to be reached: each once a turn */
    struct places now, next;
};

static bool is_word(const struct search *s, size_t at)
{
    return at < s->bytes && s->text[at] < 0x80 && (isalnum(s->text[at]) || s->text[at] == '_');
}

static bool is_edge(const struct search *s)
{
    return (s->at > 0 && is_word(s, s->at - 1)) != is_word(s, s->at);
}

static void push(struct search *s, unsigned *n, uint16_t step)
{
    if (s->seen[step] == s->turn)
        return;
    assert(*n <= PATTERN_STEPS_MAX);
    s->seen[step] = s->turn;
    s->stack[(*n)++] = step;
}

/* Follows what needs no byte; true: the end of the pattern is reached. */
static bool reach(struct search *s, uint16_t first)
{
    unsigned n = 0;
    push(s, &n, first);
    while (n > 0) {
        uint16_t at = s->stack[--n];
        const struct step *step = &s->pattern->steps[at];
        bool on = true;
        switch ((enum step_kind)step->kind) {
        case STEP_FOUND:
            return true;
        case STEP_SET:
            s->now.items[s->now.n++] = at;
            continue;
        case STEP_SPLIT:
            push(s, &n, step->a);
            push(s, &n, step->b);
            continue;
        case STEP_JUMP:
            push(s, &n, step->a);
            continue;
        case STEP_BEGIN:
            on = s->at == 0;
            break;
        case STEP_END:
            on = s->at == s->bytes;
            break;
        case STEP_EDGE:
            on = is_edge(s);
            break;
        case STEP_NO_EDGE:
            on = !is_edge(s);
            break;
        }
        if (on)
            push(s, &n, (uint16_t)(at + 1));
    }
    return false;
}

bool pattern_matches(const struct pattern *pattern, const char *text, size_t bytes)
{
    struct search s;
    s.pattern = pattern;
    s.text = (const unsigned char *)text;
    s.bytes = bytes;
    s.turn = 0;
    s.next.n = 0;
    memset(s.seen, 0, pattern->n_steps * sizeof *s.seen);
    for (s.at = 0; s.at <= bytes; s.at++) {
        if (++s.turn == 0) { /* of a text of 4 GiB */
            memset(s.seen, 0, sizeof s.seen);
            s.turn = 1;
        }
        s.now.n = 0;
        for (unsigned i = 0; i < s.next.n; i++)
            if (reach(&s, s.next.items[i]))
                return true;
        if (reach(&s, 0)) /* it may begin anywhere */
            return true;
        s.next.n = 0;
        for (unsigned i = 0; i < s.now.n && s.at < bytes; i++)
            if (set_has(&pattern->sets[pattern->steps[s.now.items[i]].a], s.text[s.at]))
                s.next.items[s.next.n++] = (uint16_t)(s.now.items[i] + 1);
    }
    return false;
}
