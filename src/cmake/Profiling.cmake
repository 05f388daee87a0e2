# src/prof and src/pprof with what they are made of, and the modules whose threads make themselves known. Our
# own text is the sampling; unwinding, packing and compression are libraries'.
pkg_check_modules(LIBDW REQUIRED IMPORTED_TARGET libdw>=0.188)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
find_program(PROTOC_C protoc-c REQUIRED)

set(generated ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${generated}/prof)
add_custom_command(
    OUTPUT ${generated}/prof/profile.pb-c.c ${generated}/prof/profile.pb-c.h
    COMMAND ${PROTOC_C} --proto_path=${CMAKE_SOURCE_DIR}/src --c_out=${generated} prof/profile.proto
    DEPENDS ${CMAKE_SOURCE_DIR}/src/prof/profile.proto)
# Not our text: our warnings don't apply, but what hardens the binary does.
add_library(mr_prof_proto STATIC ${generated}/prof/profile.pb-c.c ${generated}/prof/profile.pb-c.h)
millrace_compile_options(mr_prof_proto)
target_compile_options(mr_prof_proto PRIVATE -w)
target_include_directories(mr_prof_proto PUBLIC ${generated})
target_link_libraries(mr_prof_proto PUBLIC PkgConfig::PROTOBUF_C)

add_compile_definitions(MR_PROFILING)
add_millrace_module(prof LINK mr_base mr_flame mr_prof_proto PkgConfig::LIBDW PkgConfig::ZLIB
                    PkgConfig::CURL Threads::Threads)
add_millrace_module(pprof LINK mr_prof mr_admin)
foreach(module sink pipeline admin)
    target_link_libraries(mr_${module} PUBLIC mr_prof)
endforeach()
target_sources(millrace PRIVATE src/profiling.c src/ask_profile.c
               src/prof/heap_conf.c)
target_link_libraries(millrace PRIVATE mr_pprof)

# heap_conf.c is for the program alone.
get_target_property(sources mr_prof SOURCES)
list(FILTER sources EXCLUDE REGEX "/heap_conf\\.c$")
set_target_properties(mr_prof PROPERTIES SOURCES "${sources}")

# Names of what Debian's shared libraries keep for themselves, from the archives in the same packages. They stand
# beside the program, where it looks for them by build id; a library that was updated since has none.
add_executable(millrace-names src/tools/millrace_names.c src/tools/names_file.c)
target_link_libraries(millrace-names PRIVATE mr_base PkgConfig::LIBDW elf)
millrace_compile_options(millrace-names)
function(millrace_name_library library)
    find_library(${library}_shared lib${library}.so)
    foreach(archive lib${library}_pic.a lib${library}.a)
        find_library(${library}_archive ${archive})
    endforeach()
    if(NOT ${library}_shared OR NOT ${library}_archive)
        return()
    endif()
    set(stamp ${CMAKE_BINARY_DIR}/names/${library})
    add_custom_command(OUTPUT ${stamp}
        COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0 $<TARGET_FILE:millrace-names>
                ${CMAKE_BINARY_DIR}/names ${${library}_shared} ${${library}_archive}
        COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
        DEPENDS millrace-names ${${library}_shared} ${${library}_archive})
    add_custom_target(names_${library} DEPENDS ${stamp})
    add_dependencies(millrace names_${library})
endfunction()
foreach(library rdkafka jemalloc pq lz4 zstd microhttpd z curl ssl crypto dw elf)
    millrace_name_library(${library})
endforeach()
install(DIRECTORY ${CMAKE_BINARY_DIR}/names/.build-id DESTINATION lib/millrace/names OPTIONAL)
