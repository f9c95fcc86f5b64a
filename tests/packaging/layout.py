"""layout.py HEADER - what a program that was compiled with the header relies on: sizes of its structs, a line each.

    python3 tests/packaging/layout.py include/quire.h

"struct quire_info 120"; "struct quire_open_options 64+" where the struct carries its size and may grow at its end.
"""
import re
import subprocess
import sys
import tempfile

header = sys.argv[1]
with open(header, encoding="utf-8") as file:
    text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
found = re.findall(r"^struct (quire_\w+) \{(.*?)^\};", text, flags=re.S | re.M)
with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/a.c", "w", encoding="utf-8") as file:
        file.write(f'#include "{header}"\n#include <stdio.h>\nint main(void)\n{{\n')
        for name, body in found:
            grows = "+" if "struct_bytes" in body else ""
            file.write(f'    printf("struct {name} %zu{grows}\\n", sizeof(struct {name}));\n')
        file.write("}\n")
    subprocess.run(["cc", "-std=c11", "-o", f"{folder}/a", f"{folder}/a.c"], check=True)
    print(subprocess.run([f"{folder}/a"], check=True, stdout=subprocess.PIPE, text=True).stdout, end="")
