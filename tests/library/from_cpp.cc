// from_cpp.cc - the public header from C++: it compiles, and its functions link.
#include <quire.h>
#include <cstdio>

int main()
{
    static_assert(QUIRE_VERSION_NUMBER >= 100, "version macros");
    quire_search_options options;
    quire_search_options_init(&options);
    quire_error err = {};
    quire_index *index = nullptr;
    int rc = quire_open("/nonexistent/index", nullptr, &index, &err);
    std::printf("%s: %s\n", quire_error_name(rc), err.message);
    quire_cache *cache = nullptr;
    int no_cache = quire_cache_open("/nonexistent/cache", nullptr, &cache, &err);
    std::printf("%s: %s\n", quire_error_name(no_cache), err.message);
    return rc == QUIRE_ENOFILE && index == nullptr && no_cache == QUIRE_ENOFILE && cache == nullptr ? 0 : 1;
}
