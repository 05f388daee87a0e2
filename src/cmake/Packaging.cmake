# Where things go, and the packages. In the build folder of preset `package`: cpack -G DEB, cpack -G RPM.
include(GNUInstallDirs)

# The unit and the manual name /etc/millrace, wherever the program of a system lies; somebody's own folder stays one.
if(CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?$")
    set(MILLRACE_CONFIG_DIR /etc/millrace)
else()
    set(MILLRACE_CONFIG_DIR etc/millrace)
endif()

install(TARGETS millrace millrace-verify RUNTIME)
install(FILES packaging/config.toml DESTINATION ${MILLRACE_CONFIG_DIR})
install(FILES docs/deploy/millrace.service docs/deploy/millrace@.service docs/deploy/millrace-verify@.service docs/deploy/millrace.target
              docs/deploy/millrace.slice
        DESTINATION lib/systemd/system)
install(FILES packaging/copyright README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(MILLRACE_LIBRDKAFKA_LICENSES)
    install(FILES ${MILLRACE_LIBRDKAFKA_LICENSES} DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME librdkafka-licenses.txt)
endif()
execute_process(COMMAND gzip -9nc ${CMAKE_SOURCE_DIR}/CHANGELOG.md OUTPUT_FILE ${CMAKE_BINARY_DIR}/package-changelog.gz)
install(FILES ${CMAKE_BINARY_DIR}/package-changelog.gz DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME changelog.gz)
install(FILES packaging/lintian-overrides DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides RENAME millrace)
install(FILES scripts/role.sql DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace)
install(DIRECTORY grafana/dashboards DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/grafana FILES_MATCHING PATTERN "*.json")
install(FILES grafana/prometheus/rules.yml DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/prometheus)

# The program writes its own manual pages and completions, so that they are of this program. Not when it was built for
# another machine.
if(NOT CMAKE_CROSSCOMPILING)
    set(reference ${CMAKE_BINARY_DIR}/reference)
    set(outputs)
    foreach(part man man-verify man-config bash zsh fish)
        add_custom_command(OUTPUT ${reference}/${part} DEPENDS millrace
            COMMAND ${CMAKE_COMMAND} -E make_directory ${reference}
            COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0
                    $<TARGET_FILE:millrace> reference ${part} > ${reference}/${part}
            COMMAND gzip -9nkf ${reference}/${part})
        list(APPEND outputs ${reference}/${part})
    endforeach()
    add_custom_target(reference ALL DEPENDS ${outputs})
    install(FILES ${reference}/man.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME millrace.1.gz)
    install(FILES ${reference}/man-verify.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME millrace-verify.1.gz)
    install(FILES ${reference}/man-config.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man5 RENAME millrace.toml.5.gz)
    install(FILES ${reference}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME millrace)
    install(FILES ${reference}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME millrace-verify)
    install(FILES ${reference}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions RENAME _millrace)
    install(FILES ${reference}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME millrace.fish)
    install(FILES ${reference}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME millrace-verify.fish)
endif()

set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_VENDOR "the millrace developers")
set(CPACK_PACKAGE_CONTACT "the millrace developers <maintainers@millrace.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "streams row changes from PostgreSQL to Kafka")
set(CPACK_PACKAGE_DESCRIPTION
"millrace reads PostgreSQL's logical replication stream, writes each change
as JSON in Debezium's form, and produces it to Kafka, in commit order,
without losing a row. It takes about 20 MB of memory.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON) # /etc is not below /usr
set(CPACK_STRIP_FILES OFF) # the symbol table stays: profiles name functions by it
# A package fits the system it was built on, and its version says which: VERSION+debian12 is older than VERSION+debian13.
cmake_host_system_information(RESULT MILLRACE_SYSTEM QUERY DISTRIB_INFO)
set(system ${MILLRACE_SYSTEM_ID}${MILLRACE_SYSTEM_VERSION_ID})
set(CPACK_DEBIAN_PACKAGE_VERSION ${PROJECT_VERSION}+${system})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION database)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS ca-certificates)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
file(WRITE ${CMAKE_BINARY_DIR}/package/conffiles "/etc/millrace/config.toml\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/package/conffiles
    ${CMAKE_SOURCE_DIR}/packaging/postinst ${CMAKE_SOURCE_DIR}/packaging/prerm ${CMAKE_SOURCE_DIR}/packaging/postrm)
set(CPACK_RPM_PACKAGE_RELOCATABLE OFF)
set(CPACK_RPM_PACKAGE_RELEASE 1.${system})
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_USER_FILELIST "%config(noreplace) /etc/millrace/config.toml")
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /etc /usr/share/man /usr/share/man/man1 /usr/share/man/man5
    /usr/lib/systemd /usr/lib/systemd/system /usr/share/bash-completion /usr/share/bash-completion/completions
    /usr/share/zsh /usr/share/zsh/vendor-completions /usr/share/fish /usr/share/fish/vendor_completions.d)
include(CPack)
