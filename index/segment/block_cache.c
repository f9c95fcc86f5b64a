/*
 * block_cache.c - a cache of blocks that a scan cannot wash out.
 *
 * Admission: while frames are free every block gets one. After that a block that is offered for the first time is only
 * remembered: its number goes into a list of ghosts, first in, first out, which costs some bytes and no frame. A block
 * that is offered again while it is remembered gets a frame. That is A1out of 2Q (Johnson and Shasha, VLDB 1994) and
 * the ghost queue of S3-FIFO (Yang et al., SOSP 2023) without their small queue of first-time blocks: a search reads a
 * block at most once, so the quick second hits that such a queue is for are rare. As many ghosts as frames: twice as
 * many admitted too much and lost up to 2 hits in 100 on Zipf traces.
 *
 * Scans: one over more blocks than there are ghosts, repeated or not, offers no block again while it is remembered and
 * takes no frame. Scans side by side offer a block several times within a short while; offers up to n_frames /
 * YOUNG_SHARE misses after the first therefore do not count ("correlated references" in 2Q). What a scan puts into free
 * frames has a use count of 0 and goes first.
 *
 * Eviction: a clock over the frames with use counts of 0..USES_MAX (the main queue of S3-FIFO): a hit adds one, the
 * passing hand takes one, a frame without uses loses its block.
 *
 * Threads: block b belongs to shard b mod n_shards, with frames, directory and ghosts of its own under a mutex. No
 * block is copied under it: a reader counts itself in at the frame, copies and counts itself out; a frame that is being
 * filled is marked and not yet a hit; the hand passes over both. The remainder, not a hash, because it spreads
 * neighbours that are hot together evenly, and because a cache with room for all blocks then holds all blocks.
 *
 * Memory: all is mapped at creation, and resident when touched. The directory is a table with linear probing; where it
 * would have as many places as the shard has blocks, it is an array by number. The shards' frames are interleaved, so
 * that the used part of the mapping grows from its front whatever the number of shards.
 */
#include "index/segment/block_cache.h"
#include "io/memory.h"
#include "io/random.h"
#include "quire.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define SHARD_BITS_MAX   6u
#define SHARD_FRAMES_MIN 64u /* more shards only where each has this many frames: hot blocks spread unevenly over few */
#define GHOSTS_PER_FRAME 1u
#define YOUNG_SHARE      4u
#define USES_MAX         3u
#define FILLING          0x80000000u /* in frame.users */
#define GHOST            0x80000000u /* in place.at */
#define NONE             UINT32_MAX
#define LINE_BYTES       64u

/* Numbers of blocks are those within the shard, plus 1 where 0 means none ("tag"). */
struct frame {
    uint32_t tag;
    uint32_t uses;
    atomic_uint users; /* threads that copy from it, or FILLING; rises only under the mutex */
};

struct place {
    uint32_t tag;
    uint32_t at; /* the frame, or GHOST + the ghost */
};

struct ghost {
    uint32_t tag;
    uint32_t time; /* shard.time when it was remembered */
};

struct shard {
    _Alignas(LINE_BYTES) pthread_mutex_t mutex;
    struct frame *frames;
    struct place *places;
    struct ghost *ghosts; /* a ring */
    uint32_t n_frames, n_places, n_ghosts;
    uint32_t n_used;     /* frames 0 .. n_used - 1 hold or receive a block */
    uint32_t hand;       /* next frame that the clock looks at */
    uint32_t next_ghost; /* next to be written */
    uint32_t time;       /* offers so far; wraps around */
    bool direct;         /* places is an array by number */
    uint64_t hits, misses, admitted, evicted, remembered;
};

struct block_cache {
    uint32_t block_bytes, n_blocks, n_frames, shard_bits;
    uint64_t books_bytes; /* of the mapping that begins here */
    uint8_t *frames;      /* n_frames x block_bytes; frame f of shard s is number f * n_shards + s */
    struct shard shards[];
};

/* How a cache of so many frames is laid out; counts and bytes are those of the largest shard. */
struct layout {
    uint32_t shard_bits, n_frames, n_ghosts, n_places;
    bool direct;
    size_t frames_bytes, places_bytes, ghosts_bytes;
    uint64_t books_bytes, total_bytes;
};

static uint64_t round_up(uint64_t x, uint64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

static void layout_make(struct layout *l, uint32_t n_frames, uint32_t block_bytes, uint32_t n_blocks)
{
    l->shard_bits = 0;
    while (l->shard_bits < SHARD_BITS_MAX && n_frames >> (l->shard_bits + 1) >= SHARD_FRAMES_MIN)
        l->shard_bits++;
    uint64_t n_shards = 1u << l->shard_bits, blocks = round_up(n_blocks, n_shards) >> l->shard_bits;
    l->n_frames = (uint32_t)(round_up(n_frames, n_shards) >> l->shard_bits);
    uint64_t ghosts = (uint64_t)l->n_frames * GHOSTS_PER_FRAME;
    l->n_ghosts = (uint32_t)(ghosts < blocks ? ghosts : blocks);
    uint64_t places = ((uint64_t)l->n_frames + l->n_ghosts) * 3 / 2; /* at most 2/3 full */
    l->direct = places >= blocks;
    l->n_places = (uint32_t)(l->direct ? blocks : places);
    l->frames_bytes = round_up(l->n_frames * sizeof(struct frame), LINE_BYTES);
    l->places_bytes = round_up(l->n_places * sizeof(struct place), LINE_BYTES);
    l->ghosts_bytes = round_up(l->n_ghosts * sizeof(struct ghost), LINE_BYTES);
    uint64_t shard_bytes = sizeof(struct shard) + l->frames_bytes + l->places_bytes + l->ghosts_bytes;
    l->books_bytes = round_up(sizeof(struct block_cache) + n_shards * shard_bytes, 4096);
    l->total_bytes = l->books_bytes + (uint64_t)n_frames * block_bytes;
}

/* The most frames that fit into memory_bytes with all that goes with them, or 0. */
static uint32_t layout_fit(struct layout *l, uint64_t memory_bytes, uint32_t block_bytes, uint32_t n_blocks)
{
    uint64_t frames = memory_bytes / block_bytes;
    if (frames > n_blocks)
        frames = n_blocks;
    while (frames > 0) {
        layout_make(l, (uint32_t)frames, block_bytes, n_blocks);
        if (l->total_bytes <= memory_bytes)
            return (uint32_t)frames;
        uint64_t excess = round_up(l->total_bytes - memory_bytes, block_bytes) / block_bytes;
        frames -= excess < frames ? excess : frames;
    }
    return 0;
}

/* Shard s in the mapping's zeroed memory; `at` is where its arrays begin. */
static int shard_init(struct shard *s, const struct layout *l, uint32_t number, uint32_t n_frames, uint8_t *at)
{
    s->n_frames = (n_frames - number + (1u << l->shard_bits) - 1) >> l->shard_bits;
    s->n_places = l->n_places;
    s->n_ghosts = l->n_ghosts;
    s->direct = l->direct;
    s->frames = (struct frame *)at;
    s->places = (struct place *)(at + l->frames_bytes);
    s->ghosts = (struct ghost *)(at + l->frames_bytes + l->places_bytes);
    return pthread_mutex_init(&s->mutex, NULL) == 0 ? 0 : QUIRE_ENOMEM;
}

int block_cache_create(uint64_t memory_bytes, uint32_t block_bytes, uint32_t n_blocks, struct block_cache **out)
{
    if (block_bytes == 0 || block_bytes % QUIRE_BLOCK_BYTES_MIN || block_bytes > QUIRE_BLOCK_BYTES_MAX || n_blocks == 0)
        return QUIRE_EINVALID;
    struct layout l;
    uint32_t n_frames = layout_fit(&l, memory_bytes, block_bytes, n_blocks);
    if (n_frames < BLOCK_CACHE_FRAMES_MIN && n_frames < n_blocks)
        return QUIRE_ELIMIT;
    struct block_cache *c = memory_map(l.books_bytes, 0);
    if (!c)
        return QUIRE_ENOMEM;
    c->block_bytes = block_bytes;
    c->n_blocks = n_blocks;
    c->n_frames = n_frames;
    c->books_bytes = l.books_bytes;
    c->shard_bits = l.shard_bits;
    c->frames = memory_map_alone(memory_size_mul(n_frames, block_bytes), 1);
    int rc = c->frames ? 0 : QUIRE_ENOMEM;
    size_t arrays_bytes = l.frames_bytes + l.places_bytes + l.ghosts_bytes;
    uint8_t *at = (uint8_t *)(c->shards + (1u << c->shard_bits));
    uint32_t n_ready = 0;
    while (rc == 0 && n_ready < 1u << c->shard_bits) {
        rc = shard_init(&c->shards[n_ready], &l, n_ready, n_frames, at + n_ready * arrays_bytes);
        n_ready += rc == 0;
    }
    if (rc) {
        while (n_ready > 0)
            pthread_mutex_destroy(&c->shards[--n_ready].mutex);
        memory_unmap(c->frames, memory_size_mul(n_frames, block_bytes));
        memory_unmap(c, l.books_bytes);
        return rc;
    }
    *out = c;
    return 0;
}

void block_cache_destroy(struct block_cache *cache)
{
    if (!cache)
        return;
    for (uint32_t s = 0; s < 1u << cache->shard_bits; s++)
        pthread_mutex_destroy(&cache->shards[s].mutex);
    memory_unmap(cache->frames, memory_size_mul(cache->n_frames, cache->block_bytes));
    memory_unmap(cache, cache->books_bytes);
}

static struct shard *shard_of(struct block_cache *cache, uint32_t block, uint32_t *tag)
{
    assert(block < cache->n_blocks);
    *tag = (block >> cache->shard_bits) + 1;
    return &cache->shards[block & ((1u << cache->shard_bits) - 1)];
}

static uint8_t *frame_bytes(struct block_cache *cache, const struct shard *s, uint32_t frame)
{
    uint64_t number = ((uint64_t)frame << cache->shard_bits) + (uint64_t)(s - cache->shards);
    return cache->frames + number * cache->block_bytes;
}

/* ---- directory --------------------------------------------------------------------------------------------------- */

static uint32_t home_of(const struct shard *s, uint32_t tag)
{
    return s->direct ? tag - 1 : (uint32_t)((random_mix(tag) >> 32) * s->n_places >> 32);
}

static uint32_t place_after(const struct shard *s, uint32_t place)
{
    return place + 1 < s->n_places ? place + 1 : 0;
}

/* The place of the tag, or the empty one where it would stand. */
static uint32_t place_of(const struct shard *s, uint32_t tag)
{
    uint32_t place = home_of(s, tag);
    while (s->places[place].tag != 0 && s->places[place].tag != tag)
        place = place_after(s, place);
    return place;
}

static void place_set(struct shard *s, uint32_t tag, uint32_t at)
{
    s->places[place_of(s, tag)] = (struct place){.tag = tag, .at = at};
}

/* Empties a place and moves what stands behind it into the hole as long as that brings it nearer to its home (Knuth,
 * volume 3, algorithm 6.4R): no markers of deleted entries, which would pile up. */
static void place_remove(struct shard *s, uint32_t tag)
{
    uint32_t hole = place_of(s, tag);
    assert(s->places[hole].tag == tag);
    s->places[hole].tag = 0;
    for (uint32_t p = place_after(s, hole); !s->direct && s->places[p].tag != 0; p = place_after(s, p)) {
        uint32_t home = home_of(s, s->places[p].tag);
        uint32_t from_home = p >= home ? p - home : p + s->n_places - home;
        uint32_t from_hole = p >= hole ? p - hole : p + s->n_places - hole;
        if (from_home < from_hole)
            continue;
        s->places[hole] = s->places[p];
        s->places[p].tag = 0;
        hole = p;
    }
}

/* ---- ghosts and clock -------------------------------------------------------------------------------------------- */

/* The oldest ghost makes room. */
static void remember(struct shard *s, uint32_t tag)
{
    struct ghost *g = &s->ghosts[s->next_ghost];
    assert(s->next_ghost < s->n_ghosts && s->places[place_of(s, tag)].tag == 0);
    if (g->tag != 0)
        place_remove(s, g->tag);
    *g = (struct ghost){.tag = tag, .time = s->time};
    place_set(s, tag, GHOST | s->next_ghost);
    s->next_ghost = s->next_ghost + 1 < s->n_ghosts ? s->next_ghost + 1 : 0;
}

/* A frame without a block, or NONE where every frame is in somebody's hands. */
static uint32_t evict(struct shard *s)
{
    for (uint64_t looks = 0; looks < (uint64_t)s->n_frames * (USES_MAX + 1); looks++) {
        uint32_t frame = s->hand;
        struct frame *f = &s->frames[frame];
        s->hand = frame + 1 < s->n_frames ? frame + 1 : 0;
        if (atomic_load_explicit(&f->users, memory_order_acquire) != 0)
            continue;
        if (f->uses > 0) {
            f->uses--;
            continue;
        }
        assert(frame < s->n_used && f->tag != 0);
        place_remove(s, f->tag);
        s->evicted++;
        return frame;
    }
    return NONE;
}

/* A frame for a block that is offered, or NONE. */
static uint32_t frame_for(struct shard *s, uint32_t tag)
{
    if (s->n_used < s->n_frames)
        return s->n_used++;
    const struct place *p = &s->places[place_of(s, tag)];
    if (p->tag != tag) {
        remember(s, tag);
        s->remembered++;
        return NONE;
    }
    assert(p->at & GHOST && s->ghosts[p->at & ~GHOST].tag == tag); /* a block in a frame is not offered a second one */
    if (s->time - s->ghosts[p->at & ~GHOST].time <= s->n_frames / YOUNG_SHARE)
        return NONE;
    return evict(s);
}

/* The block's number leads to its frame and no longer to a ghost. */
static void enter(struct shard *s, uint32_t tag, uint32_t frame)
{
    const struct place *p = &s->places[place_of(s, tag)];
    if (p->tag == tag)
        s->ghosts[p->at & ~GHOST].tag = 0;
    assert(frame < s->n_used && atomic_load_explicit(&s->frames[frame].users, memory_order_relaxed) == 0);
    place_set(s, tag, frame);
    s->frames[frame].tag = tag;
    s->frames[frame].uses = 0;
    atomic_store_explicit(&s->frames[frame].users, FILLING, memory_order_relaxed);
    s->admitted++;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* The frame that holds the block, with the caller counted in, or NONE. */
static uint32_t enter_reader(struct shard *s, uint32_t tag)
{
    const struct place *p = &s->places[place_of(s, tag)];
    if (p->tag != tag || p->at & GHOST)
        return NONE;
    struct frame *f = &s->frames[p->at];
    assert(p->at < s->n_used && f->tag == tag);
    if (atomic_load_explicit(&f->users, memory_order_acquire) & FILLING)
        return NONE;
    atomic_fetch_add_explicit(&f->users, 1, memory_order_relaxed);
    if (f->uses < USES_MAX)
        f->uses++;
    return p->at;
}

bool block_cache_get(struct block_cache *cache, uint32_t block, void *to)
{
    uint32_t tag;
    struct shard *s = shard_of(cache, block, &tag);
    pthread_mutex_lock(&s->mutex);
    uint32_t frame = enter_reader(s, tag);
    if (frame == NONE)
        s->misses++;
    else
        s->hits++;
    pthread_mutex_unlock(&s->mutex);
    if (frame == NONE)
        return false;
    memcpy(to, frame_bytes(cache, s, frame), cache->block_bytes);
    unsigned users = atomic_fetch_sub_explicit(&s->frames[frame].users, 1, memory_order_release);
    assert(users > 0 && !(users & FILLING)); /* nothing took the frame while it was copied from */
    return true;
}

void block_cache_offer(struct block_cache *cache, uint32_t block, const void *bytes)
{
    uint32_t tag, frame = NONE;
    struct shard *s = shard_of(cache, block, &tag);
    pthread_mutex_lock(&s->mutex);
    s->time++;
    const struct place *p = &s->places[place_of(s, tag)];
    if (p->tag != tag || p->at & GHOST) /* else another lane was faster */
        frame = frame_for(s, tag);
    if (frame != NONE)
        enter(s, tag, frame);
    pthread_mutex_unlock(&s->mutex);
    if (frame == NONE)
        return;
    memcpy(frame_bytes(cache, s, frame), bytes, cache->block_bytes);
    unsigned users = atomic_exchange_explicit(&s->frames[frame].users, 0, memory_order_release);
    assert(users == FILLING);
}

void block_cache_stats(struct block_cache *cache, struct block_cache_stats *out)
{
    struct block_cache_stats sum = {.n_frames = cache->n_frames};
    for (uint32_t i = 0; i < 1u << cache->shard_bits; i++) {
        struct shard *s = &cache->shards[i];
        pthread_mutex_lock(&s->mutex);
        sum.hits += s->hits;
        sum.misses += s->misses;
        sum.admitted += s->admitted;
        sum.evicted += s->evicted;
        sum.remembered += s->remembered;
        sum.n_frames_used += s->n_used;
        pthread_mutex_unlock(&s->mutex);
    }
    assert(sum.n_frames_used <= sum.n_frames && sum.evicted <= sum.admitted);
    *out = sum;
}

uint64_t block_cache_bytes(const struct block_cache *cache)
{
    return cache->books_bytes + (uint64_t)cache->n_frames * cache->block_bytes;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

static const char *shard_check(const struct shard *s)
{
    uint32_t n_entries = 0, n_ghosts = 0;
    for (uint32_t f = 0; f < s->n_used; f++) {
        const struct place *p = &s->places[place_of(s, s->frames[f].tag)];
        if (s->frames[f].tag == 0 || p->tag != s->frames[f].tag || p->at != f)
            return "a frame that the directory does not lead to";
    }
    for (uint32_t g = 0; g < s->n_ghosts; g++) {
        if (s->ghosts[g].tag == 0)
            continue;
        const struct place *p = &s->places[place_of(s, s->ghosts[g].tag)];
        if (p->tag != s->ghosts[g].tag || p->at != (GHOST | g))
            return "a ghost that the directory does not lead to";
        n_ghosts++;
    }
    for (uint32_t p = 0; p < s->n_places; p++)
        n_entries += s->places[p].tag != 0;
    if (n_entries != s->n_used + n_ghosts)
        return "an entry of the directory that leads nowhere";
    return s->admitted - s->evicted == s->n_used ? NULL : "counts that do not match the frames in use";
}

bool block_cache_check(struct block_cache *cache, const char **reason)
{
    *reason = NULL;
    for (uint32_t i = 0; i < 1u << cache->shard_bits && !*reason; i++) {
        struct shard *s = &cache->shards[i];
        pthread_mutex_lock(&s->mutex);
        *reason = shard_check(s);
        pthread_mutex_unlock(&s->mutex);
    }
    return *reason == NULL;
}
