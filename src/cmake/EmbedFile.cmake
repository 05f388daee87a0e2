# cmake -DINPUT=file -DOUTPUT=file.c -DNAME=function -DHEADER=header -P EmbedFile.cmake
# writes a C file whose function answers the bytes of the input as a mr_slice; a NUL follows them.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" lines "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," array "${lines}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n
static const uint8_t bytes[] = {\n${array}0};\n
mr_slice ${NAME}(void)\n{\n    return (mr_slice){.data = bytes, .len = sizeof(bytes) - 1};\n}\n")
