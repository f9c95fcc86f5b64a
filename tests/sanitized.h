/* sanitized.h - whether a test runs under a sanitizer: memory that was freed stays resident, shadow memory counts, and
 * everything is slower. */
#ifndef QUIRE_TESTS_SANITIZED_H
#define QUIRE_TESTS_SANITIZED_H

#if defined(__has_feature)
#define SANITIZED_FEATURE(name) __has_feature(name)
#else
#define SANITIZED_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || SANITIZED_FEATURE(address_sanitizer) ||           \
    SANITIZED_FEATURE(thread_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* Of two sizes the one for this run: the second under a sanitizer, where the same is proved of fewer. */
#define SANITIZED_SIZE(usual, sanitized) (SANITIZED ? (sanitized) : (usual))

/* Before a function of a test that computes what is expected, by one thread from what nobody changes: -fsanitize=thread
 * leaves its reads out, which are most of the time of a brute force. */
#if defined(__SANITIZE_THREAD__) || SANITIZED_FEATURE(thread_sanitizer)
#define NO_THREADS __attribute__((no_sanitize("thread")))
#else
#define NO_THREADS
#endif

#endif
