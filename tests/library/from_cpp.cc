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
    return rc == QUIRE_ENOFILE && index == nullptr ? 0 : 1;
}
