# The image of all programs: groundplane-operator, groundplane-router, groundplane-shard and the command line groundplane.
# docs/image.md says how it is built, run and checked.
#
# The base is named once and serves every stage: a virtual environment is bound to the interpreter that made it.
ARG BASE_IMAGE=python:3.11-slim-bookworm

# The locked dependencies, put there by a pip that stays behind. A package index or a CA of one's own comes as a secret and
# leaves no trace; without secrets pip's defaults hold.
FROM ${BASE_IMAGE} AS dependencies
RUN echo 'groundplane:x:65532:65532::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'groundplane:x:65532:' >> /etc/group
COPY requirements-image.lock /opt/groundplane/requirements.lock
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.pem \
    python3 -m venv /tmp/tools \
 && python3 -m venv --without-pip /opt/groundplane \
 && PIP_CONFIG_FILE=/run/secrets/pip.conf /tmp/tools/bin/pip --python /opt/groundplane/bin/python install \
      --no-cache-dir --disable-pip-version-check --progress-bar off \
      --require-hashes --only-binary :all: -r /opt/groundplane/requirements.lock \
 && rm -r /tmp/tools

# The project itself, as the files that it adds to /opt/groundplane; of this stage's own environment, with pip and the build
# backend in it, nothing goes further. .dockerignore names what `.` is.
FROM ${BASE_IMAGE} AS code
COPY requirements-build.lock /build/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.pem \
    python3 -m venv /opt/groundplane \
 && PIP_CONFIG_FILE=/run/secrets/pip.conf /opt/groundplane/bin/pip install \
      --no-cache-dir --disable-pip-version-check --progress-bar off \
      --require-hashes --only-binary :all: -r /build/requirements-build.lock
COPY . /build
RUN /opt/groundplane/bin/pip install \
      --no-cache-dir --no-index --no-deps --no-build-isolation --no-warn-script-location --root /layer /build

# The last layer is the only one that a change of code makes anew.
FROM dependencies
ENV PATH=/opt/groundplane/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MALLOC_ARENA_MAX=2
# The number, not the name: Kubernetes checks runAsNonRoot without looking into the image.
USER 65532:65532
CMD ["groundplane", "--help"]
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="groundplane" \
      org.opencontainers.image.description="Grounds LLM agents in their own tenant's records" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=code /layer /
