/*
 * text_language.c - the languages by RediSearch's names, and the algorithm of libstemmer for each.
 *
 * Malay has no algorithm of its own and takes that of Indonesian, as there. Chinese has no stems. Tagalog, which newer
 * versions of libstemmer know, is not offered: Debian's 2.2 does not have it.
 */
#include "document/text/text_priv.h"
#include <string.h>
#include <strings.h>

struct text_language {
    const char *name, *algorithm;
    bool parts;
};

#define OWN(name)                                                                                                      \
    {                                                                                                                  \
        name, name, false                                                                                              \
    }

static const struct text_language languages[] = {
    OWN("arabic"),
    OWN("armenian"),
    OWN("basque"),
    OWN("catalan"),
    {"chinese", NULL, true},
    OWN("danish"),
    OWN("dutch"),
    OWN("english"),
    OWN("finnish"),
    OWN("french"),
    OWN("german"),
    OWN("greek"),
    OWN("hindi"),
    OWN("hungarian"),
    OWN("indonesian"),
    OWN("irish"),
    OWN("italian"),
    OWN("lithuanian"),
    {"malay", "indonesian", false},
    OWN("nepali"),
    OWN("norwegian"),
    OWN("portuguese"),
    OWN("romanian"),
    OWN("russian"),
    OWN("serbian"),
    OWN("spanish"),
    OWN("swedish"),
    OWN("tamil"),
    OWN("turkish"),
    OWN("yiddish"),
};

const struct text_language *text_language_find(const char *name, size_t bytes)
{
    for (size_t i = 0; i < sizeof languages / sizeof languages[0]; i++)
        if (strlen(languages[i].name) == bytes && strncasecmp(languages[i].name, name, bytes) == 0)
            return &languages[i];
    return NULL;
}

const char *text_language_name(const struct text_language *language)
{
    return language->name;
}

const char *text_language_algorithm(const struct text_language *language)
{
    return language->algorithm;
}

bool text_language_parts(const struct text_language *language)
{
    return language->parts;
}
