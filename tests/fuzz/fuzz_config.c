/*
 * fuzz_config.c - any bytes as a configuration file, and as words of the command line.
 *
 * A file is taken or refused with a sentence that names it; what was taken must be said by config_each in a way that
 * config_set takes again. The file is a memory file, so that nothing is left on disk.
 */
#include "server/process/config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORDS_MAX = 16 };

static void require(bool right)
{
    if (!right)
        abort();
}

/* Lists are kept joined by line ends, which no single value may hold. */
static void set_again(void *context, const char *name, const char *value, const char *help)
{
    require(help[0] != 0);
    if (!strchr(value, '\n'))
        require(config_set(context, name, value, NULL) == 0);
}

static void check_taken(const struct config *config)
{
    struct config copy;
    require(config_init(&copy, NULL) == 0);
    config_each(config, set_again, &copy);
    require(copy.port == config->port && copy.memory == config->memory && copy.engine == config->engine);
    require(strcmp(copy.bind, config->bind) == 0 && strcmp(copy.requirepass, config->requirepass) == 0);
    config_fini(&copy);
}

static void parse_words(int n, char *const *words)
{
    struct config config;
    struct quire_error err = {0};
    require(config_init(&config, &err) == 0);
    int rc = config_parse(&config, n, words, &err);
    require(rc == 0 || (rc < 0 && err.code == rc && err.message[0] != 0));
    if (rc == 0)
        check_taken(&config);
    config_fini(&config);
}

static void parse_as_file(const uint8_t *data, size_t size)
{
    char path[64], *words[1] = {path};
    int fd = memfd_create("config", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    parse_words(1, words);
    close(fd);
}

/* Lines are the words; the first is made an option, so that no file of that name is opened. */
static void parse_as_arguments(const uint8_t *data, size_t size)
{
    char *words[WORDS_MAX], *text = malloc(size + 3), *rest = text;
    int n = 0;
    require(text != NULL);
    memcpy(text, "--", 2);
    memcpy(text + 2, data, size);
    text[size + 2] = 0;
    while (n < WORDS_MAX && rest)
        words[n++] = strsep(&rest, "\n");
    parse_words(n, words);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 65536)
        return 0;
    parse_as_file(data, size);
    parse_as_arguments(data, size);
    return 0;
}
