#!/usr/bin/env python3
"""Usage: scripts/sbom.py PROGRAM > millrace.cdx.json

What a program is made of, as CycloneDX 1.5: the shared libraries that it loads, each with its Debian package, version, source
and digest, and what is compiled in. Run it where the program was built: dpkg is asked. The same input gives the same bytes."""

import hashlib
import json
import os
import re
import subprocess
import sys
import uuid

# Headers and archives that become part of the program and show in no list of libraries.
COMPILED_IN = ["libtoml11-dev", "libxxhash-dev", "liblz4-dev", "libzstd-dev"]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def libraries(program):
    """Path of each library that the loader would take, the loader included."""
    return sorted(set(re.findall(r"(/\S+) \(0x", output("ldd", program))))


def packages_of(paths):
    """Package of each library. dpkg knows a file by its place before or after /lib became /usr/lib; one question for all."""
    places = {path: (path, os.path.realpath(path), "/usr" + path, os.path.realpath(path).removeprefix("/usr")) for path in paths}
    found = subprocess.run(["dpkg-query", "-S", *sorted({name for names in places.values() for name in names})],
                           capture_output=True, text=True).stdout
    owners = {path: packages.split(",")[0].split(":")[0] for packages, path in
              (line.split(": ", 1) for line in found.splitlines() if ": " in line)}
    for path, names in places.items():
        owner = next((owners[name] for name in names if name in owners), None)
        yield path, owner or sys.exit(f"sbom.py: no package owns {path}")


def distribution():
    with open("/etc/os-release", encoding="utf-8") as file:
        fields = dict(line.rstrip().replace('"', "").split("=", 1) for line in file if "=" in line)
    return fields["ID"], fields.get("VERSION_ID", "")


def package_component(package, files):
    fields = output("dpkg-query", "-W", "-f", "${Version}\t${Architecture}\t${source:Package}\t${source:Version}", package)
    version, arch, source, source_version = fields.split("\t")
    name, release = distribution()
    purl = f"pkg:deb/{name}/{package}@{version.replace('+', '%2B').replace('~', '%7E').replace(':', '%3A')}?arch={arch}&distro={name}-{release}"
    component = {"type": "library", "bom-ref": purl, "name": package, "version": version, "purl": purl,
                 "properties": [{"name": "debian:source", "value": f"{source} {source_version}"}]}
    if files:
        component["components"] = [{"type": "file", "bom-ref": f"{purl}#{os.path.basename(path)}", "name": path,
                                    "hashes": [{"alg": "SHA-256", "content": sha256(path)}]} for path in files]
    return component


def librdkafka(program, version):
    """What scripts/librdkafka.sh built and the program holds; nothing where it is one of the shared libraries."""
    if any("librdkafka" in path for path in libraries(program)):
        return []
    purl = f"pkg:github/confluentinc/librdkafka@v{version}"
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "librdkafka.patch"), encoding="utf-8") as file:
        patch = {"type": "unofficial", "diff": {"text": {"contentType": "text/x-diff", "content": file.read()}}}
    return [{"type": "library", "bom-ref": purl, "name": "librdkafka", "version": version, "purl": purl,
             "licenses": [{"license": {"id": "BSD-2-Clause"}}], "pedigree": {"patches": [patch]}}]


def compiled_in(program):
    if any("libstdc++" in path for path in libraries(program)):
        return COMPILED_IN
    archive = os.path.realpath(output("c++", "-print-file-name=libstdc++.a").strip())
    return [*COMPILED_IN, dict(packages_of([archive]))[archive]]


def bom(program):
    packages = {name: [] for name in compiled_in(program)
                if subprocess.run(["dpkg-query", "-s", name], capture_output=True).returncode == 0}
    for path, package in packages_of(libraries(program)):
        packages.setdefault(package, []).append(path)
    components = [package_component(package, files) for package, files in sorted(packages.items())]
    versions = dict(line.split(" ", 1) for line in output(program, "--version").splitlines())
    version = versions["millrace"]
    components += librdkafka(program, versions["librdkafka"])
    digest = sha256(program)
    main = f"pkg:generic/millrace@{version}"
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "serialNumber": f"urn:uuid:{uuid.UUID(digest[:32])}",
            "metadata": {"component": {"type": "application", "bom-ref": main, "name": "millrace", "version": version,
                                       "purl": main, "licenses": [{"license": {"id": "Apache-2.0"}}],
                                       "hashes": [{"alg": "SHA-256", "content": digest}]}},
            "components": components,
            "dependencies": [{"ref": main, "dependsOn": [component["bom-ref"] for component in components]}]}


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    json.dump(bom(sys.argv[1]), sys.stdout, indent=1)
    print()
