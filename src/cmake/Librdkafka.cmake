# The Kafka client, as PkgConfig::RDKAFKA. By default it is the version that scripts/librdkafka.sh pins, linked statically, so
# that profiles have its names. The distribution's shared library does from 2.4 on: before, its main thread polls without a pause.
# Only from 2.6.1 on it can log in to Kafka 4 by SCRAM (docs/dev/packaging.md).
set(MILLRACE_LIBRDKAFKA pinned CACHE STRING "pinned: of scripts/librdkafka.sh; system: the distribution's; or a folder with include/ and lib/")

# Whether it has the functions of scripts/librdkafka.patch (src/kafka/kafka_now.c, src/sink/kafka/kafka_size.c): the last one tells.
function(millrace_look_for_send_now include)
    file(STRINGS ${include}/librdkafka/rdkafka.h found REGEX "rd_kafka_snappy_size\\(")
    if(found)
        target_compile_definitions(PkgConfig::RDKAFKA INTERFACE MILLRACE_RDKAFKA_SEND_NOW)
    endif()
endfunction()

# What it compresses with, of which librdkafka tells nothing: src/sink/kafka/kafka_size.c. Without it, each message that is too large
# for its topic costs a session, where sink.kafka.compression is not "none"; with "snappy" also without the patch.
function(millrace_look_for_codecs)
    pkg_check_modules(CODECS IMPORTED_TARGET liblz4 libzstd zlib)
    if(CODECS_FOUND)
        target_compile_definitions(PkgConfig::RDKAFKA INTERFACE MILLRACE_CODECS)
        target_link_libraries(PkgConfig::RDKAFKA INTERFACE PkgConfig::CODECS)
    endif()
endfunction()

if(MILLRACE_LIBRDKAFKA STREQUAL "system")
    pkg_check_modules(RDKAFKA REQUIRED IMPORTED_TARGET rdkafka>=2.4)
    millrace_look_for_send_now(${RDKAFKA_INCLUDEDIR})
    millrace_look_for_codecs()
    return()
endif()

set(folder ${MILLRACE_LIBRDKAFKA})
if(folder STREQUAL "pinned")
    execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/librdkafka.sh --where
                    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
if(NOT EXISTS ${folder}/lib/librdkafka.a)
    message(FATAL_ERROR "${folder} holds no librdkafka: scripts/setup.sh --build-only makes it; or link the "
                        "distribution's with -DMILLRACE_LIBRDKAFKA=system (2.4 or later)")
endif()

set(MILLRACE_LIBRDKAFKA_LICENSES ${folder}/LICENSES.txt)
add_library(PkgConfig::RDKAFKA INTERFACE IMPORTED)
target_include_directories(PkgConfig::RDKAFKA SYSTEM INTERFACE ${folder}/include)
millrace_look_for_send_now(${folder}/include)
if(MILLRACE_SANITIZE MATCHES thread)
    # It is not built with the sanitizer, which is told so by the library's name (tests/tsan.supp).
    target_link_libraries(PkgConfig::RDKAFKA INTERFACE ${folder}/lib/librdkafka.so)
    set(CMAKE_BUILD_RPATH ${folder}/lib)
    millrace_look_for_codecs()
else()
    # What compresses is hot, and stripped where it is shared.
    find_library(LZ4_ARCHIVE liblz4.a REQUIRED)
    find_library(ZSTD_ARCHIVE libzstd.a REQUIRED)
    pkg_check_modules(RDKAFKA_NEEDS REQUIRED IMPORTED_TARGET libsasl2 libssl libcrypto zlib libcurl)
    target_link_libraries(PkgConfig::RDKAFKA INTERFACE ${folder}/lib/librdkafka.a ${LZ4_ARCHIVE} ${ZSTD_ARCHIVE}
                          PkgConfig::RDKAFKA_NEEDS m dl Threads::Threads)
    target_compile_definitions(PkgConfig::RDKAFKA INTERFACE MILLRACE_CODECS)
endif()
