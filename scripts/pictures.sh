#!/usr/bin/env bash
# Usage: scripts/pictures.sh [FOLDER]
#
# Makes the pictures of the documents: docs/images/NAME.svg, or FOLDER/NAME.svg, from each docs/images/NAME.dot. Graphviz
# (scripts/setup.sh) draws them. What is the same in all is in pictures.gv; pictures.css has the colours, for light and dark.
#
#   -h, --help  this text
set -euo pipefail
# shellcheck source=scripts/lib/base.sh disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/lib/base.sh"
case "${1:-}" in
    -h | --help) print_help "$0" && exit 0 ;;
    -*) die "unknown option $1; try --help" ;;
esac
IMAGES=$REPO_ROOT/docs/images
FOLDER=${1:-$IMAGES}
have dot || die "dot is missing: scripts/setup.sh installs Graphviz"

# From Graphviz' SVG: its size in pixels, a card below it, the colours; without the page that Graphviz paints and its comments.
styled() {
    sed -e '/^<!DOCTYPE/,/>$/d; /^<!--.*-->$/d; /^<!--/,/-->$/d' \
        -e '/^<svg /s/\([0-9.]*\)pt"/\1"/g' \
        -e '/^<polygon fill="white"/d' |
        awk -v css="$IMAGES/pictures.css" '
            { print }
            /xmlns:xlink/ {
                print "<style>"
                while ((getline line <css) > 0) print line
                print "</style>"
                print "<rect class=\"card\" width=\"100%\" height=\"100%\" rx=\"10\"/>"
            }'
}

for source in "$IMAGES"/*.dot; do
    name=$(basename "$source" .dot)
    sed "/^digraph/r $IMAGES/pictures.gv" "$source" | dot -Tsvg | styled >"$FOLDER/$name.svg.new"
    mv "$FOLDER/$name.svg.new" "$FOLDER/$name.svg"
done
