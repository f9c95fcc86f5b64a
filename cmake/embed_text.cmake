# embed_text.cmake - writes a C file that holds a text as a string: cmake -DOUTPUT=file.c -DNAME=name -DFILE=text -P ...
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "/* Made by cmake/embed_text.cmake; do not edit. */\nextern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0};\n")
