"""A prefix of an S3 bucket, or of an S3-compatible store.

A staged file is an incomplete multipart upload under the file's final name: no reader can see it, and completing it is one
step, which also ends the upload. For that reason this module calls S3 directly (boto3): the operations of the job's storage
and of pyarrow (put, put-if-absent, copy) would commit in one step and delete the staged copy in another.

An upload that is never completed costs storage until it is swept. If the bucket has a lifecycle rule that aborts incomplete
uploads, its age limit must exceed the longest time the job may be down.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from tidegate.connectors.files.names import HIDDEN, OutputId
from tidegate.connectors.files.payload import StagedFile
from tidegate.connectors.outcome import CommitRefused
from tidegate.connectors.sink import LeftOutput, Settled
from tidegate.core.errors import GraphError, PreconditionFailed
from tidegate.core.faults import reach

PART_BYTES = 16 << 20
"""S3 accepts parts of at least 5 MiB, and at most 10,000 of them."""

_OPTIONS = {
    "endpoint": "endpoint_url",
    "region": "region_name",
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
}
"""Option names, shared with the checkpoint storage → boto3's names."""


_CANNOT_PASS = {
    "NoSuchBucket": "Create the bucket, or correct its name.",
    "InvalidAccessKeyId": "Correct the credentials.",
    "SignatureDoesNotMatch": "Correct the secret access key.",
    "ExpiredToken": "Renew the session token.",
    "InvalidToken": "Correct the session token.",
}
"""What a store answers until somebody corrects something, and what to do."""


class S3Prefix:
    at_once = 8
    # S3 chooses the id of an upload, and completes it under the key that it was created for, and no other.
    names_hidden = False

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        bucket, _, prefix = path.partition("/")
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        if unknown := set(options) - set(_OPTIONS):
            raise GraphError(
                f"A file sink on S3 has no option {sorted(unknown)[0]!r}; the options are {', '.join(_OPTIONS)}."
            )
        self._options = tuple(sorted((_OPTIONS[name], value) for name, value in options.items()))

    @property
    def _client(self) -> Any:
        return _connected(self._options)

    def check(self) -> None:
        """Ask for uploads, as the sweep does. A user that may only write is allowed to fail here."""
        from botocore.exceptions import ClientError, NoCredentialsError, PartialCredentialsError

        place = f"s3://{self._bucket}/{self._prefix}"
        given = dict(self._options)
        if "endpoint_url" in given:
            place += f" at {given['endpoint_url']}"
        try:
            self._client.list_multipart_uploads(Bucket=self._bucket, Prefix=self._prefix, MaxUploads=1)
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise CommitRefused(
                f"Files cannot be stored in {place}: there are no complete credentials for S3 ({error}). Set access_key_id and "
                "secret_access_key in the options of the sink, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment "
                "of the driver and the executors, or give the machine a role."
            ) from None
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code not in _CANNOT_PASS:
                raise
            user = given.get("aws_access_key_id")
            raise CommitRefused(
                f"Files cannot be stored in {place}"
                + ("" if user is None else f" with the access key {user}")
                + f": the store answers {code}. {_CANNOT_PASS[code]}"
            ) from None

    def draft(self, hidden: str) -> Path:
        return Path(tempfile.mkdtemp(prefix="tidegate-files-")) / hidden

    def stage(self, draft: Path, final: str) -> StagedFile:
        key = self._prefix + final
        upload = self._client.create_multipart_upload(Bucket=self._bucket, Key=key)["UploadId"]
        reach("files.stage-begun", file=final)
        tags: list[str] = []
        with draft.open("rb") as file:
            # Also for an empty file: an upload without parts cannot be completed.
            while (part := file.read(PART_BYTES)) or not tags:
                answer = self._client.upload_part(
                    Bucket=self._bucket, Key=key, UploadId=upload, PartNumber=len(tags) + 1, Body=part
                )
                tags.append(answer["ETag"])
        _forget(draft)
        return StagedFile(final, upload, tuple(tags))

    def discard(self, draft: Path) -> None:
        _forget(draft)

    def unstage(self, file: StagedFile) -> None:
        with suppress(Exception):
            self._abort(self._prefix + file.final, file.hidden)

    def note(self, name: str, text: str) -> None:
        self._client.put_object(Bucket=self._bucket, Key=self._hidden(name), Body=text.encode())

    def mark(self, name: str) -> None:
        self.note(name, "")

    def sync_marks(self) -> None:
        """Does nothing: a write is durable once S3 acknowledges it."""

    def read_note(self, name: str) -> str | None:
        found = self._found("get_object", Key=self._hidden(name))
        return None if found is None else found["Body"].read().decode()

    def is_staged(self, file: StagedFile) -> bool:
        key = self._prefix + file.final
        return self._found("list_parts", Key=key, UploadId=file.hidden, MaxParts=1) is not None

    def is_committed(self, file: StagedFile) -> bool:
        return self._found("head_object", Key=self._prefix + file.final) is not None

    def commit(self, file: StagedFile) -> None:
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(file.parts, 1)]
        # NoSuchUpload: it was completed before, by a committer that died, or is completed now by another one.
        self._found(
            "complete_multipart_upload",
            Key=self._prefix + file.final,
            UploadId=file.hidden,
            MultipartUpload={"Parts": parts},
        )
        reach("files.2-completed", file=file.final)

    def sync_files(self, files: Collection[StagedFile]) -> None:
        """Does nothing: a write is durable once S3 acknowledges it."""

    def marks(self) -> Iterable[str]:
        listed = self._pages("list_objects_v2", "Contents", self._hidden("part-"))
        names = [found["Key"].rpartition("/")[2] for found in listed]
        return [name for name in names if name.endswith(".commit")]

    def staged_files(self) -> Iterator[tuple[OutputId, LeftOutput]]:
        for upload in self._pages("list_multipart_uploads", "Uploads", self._prefix):
            key, id = upload["Key"], upload["UploadId"]
            output = OutputId.in_name(key)
            if output is None:
                continue
            parts = self._found("list_parts", Key=key, UploadId=id)
            if parts is None:
                continue  # committed, or aborted, since it was listed
            begun = upload.get("Initiated")
            yield (
                output,
                LeftOutput(
                    kind="multipart upload",
                    name=f"s3://{self._bucket}/{key}",
                    handle=f"{id} {key}",
                    epoch=output.epoch,
                    at_ms=None if begun is None else round(begun.timestamp() * 1000),
                    # Of the first thousand parts: enough to see what is worth deleting.
                    size_bytes=sum(part["Size"] for part in parts.get("Parts", ())),
                ),
            )

    def remove(self, left: LeftOutput) -> None:
        id, _, key = left.handle.partition(" ")
        self._abort(key, id)

    def unmark(self, name: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=self._hidden(name))

    def sweep(self, final: Settled, keep: Collection[str]) -> None:
        for upload in self._pages("list_multipart_uploads", "Uploads", self._prefix):
            output = OutputId.in_name(upload["Key"])
            if output is not None and output.covered_by(final) and upload["UploadId"] not in keep:
                self._abort(upload["Key"], upload["UploadId"])
        for found in self._pages("list_objects_v2", "Contents", self._hidden("part-")):
            name = found["Key"].rpartition("/")[2]
            output = OutputId.in_name(name)
            if output is not None and output.covered_by(final) and name not in keep:
                self._client.delete_object(Bucket=self._bucket, Key=found["Key"])
                reach("files.sweep", file=name)

    def _hidden(self, name: str) -> str:
        return f"{self._prefix}{HIDDEN}/{name}"

    def _abort(self, key: str, upload: str) -> None:
        self._found("abort_multipart_upload", Key=key, UploadId=upload)

    def _pages(self, operation: str, part: str, prefix: str) -> Iterator[dict[str, Any]]:
        for page in self._client.get_paginator(operation).paginate(Bucket=self._bucket, Prefix=prefix):
            yield from page.get(part, ())

    def _found(self, operation: str, **arguments: Any) -> Any:
        """Return the response, or None if the object or the upload does not exist (any more)."""
        from botocore.exceptions import ClientError

        try:
            return getattr(self._client, operation)(Bucket=self._bucket, **arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchUpload", "NoSuchKey", "404", "NotFound"):
                return None
            raise


@lru_cache(maxsize=16)
def _connected(options: tuple[tuple[str, str], ...]) -> Any:
    """Return a client that threads can share. Cached per process: creating one takes longer than many requests."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise PreconditionFailed("Files on S3 need boto3: pip install 'tidegate[s3]'.") from error
    given = dict(options)
    # Not all S3-compatible stores support the checksums that newer clients send by default.
    config = Config(
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # Every request may be repeated: a part has its number, completing an upload twice is answered with
        # NoSuchUpload, and one that is created twice is an orphan for the sweep.
        retries={"mode": "standard", "max_attempts": 5},
        s3={"addressing_style": "path"} if "endpoint_url" in given else None,
    )
    return boto3.session.Session().client("s3", config=config, **given)


def _forget(draft: Path) -> None:
    with suppress(OSError):
        draft.unlink(missing_ok=True)
        draft.parent.rmdir()
