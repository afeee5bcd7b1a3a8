"""Text and pictures as OpenAI's two APIs write them; what else there is, is refused by its path."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

from nacre.gateway.openai.conversation import refused, shown_value
from nacre.messages import ImagePart, TextPart, UserPart

_TEXT_KINDS: Final = frozenset(("text", "input_text", "output_text"))
_IMAGE_SCHEMES: Final = ("https:", "data:")


class WireModel(BaseModel):
    """What clients send. Members that we do not know are left aside, as other servers do."""

    model_config = ConfigDict(extra="ignore", strict=True)


class ImageAddress(WireModel):
    """Chat Completions has an object where Responses has the address itself."""

    url: str


class ContentPart(WireModel):
    """One part of a message."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageAddress | str | None = None


Content = str | list[ContentPart] | None


def text_of(content: Content, path: str) -> str:
    """For messages that hold words alone."""
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for index, part in enumerate(content):
        if part.type == "refusal":
            texts.append(part.refusal or "")
        elif part.type in _TEXT_KINDS:
            texts.append(part.text or "")
        else:
            raise refused(
                f"{path}[{index}].type",
                f"is {shown_value(part.type)}; only people's messages hold more than text",
            )
    return "".join(texts)


def user_parts(content: Content, path: str) -> list[UserPart]:
    if content is None or isinstance(content, str):
        return [TextPart(text=content or "")]
    return [_user_part(part, f"{path}[{index}]") for index, part in enumerate(content)]


def _user_part(part: ContentPart, path: str) -> UserPart:
    if part.type in _TEXT_KINDS:
        return TextPart(text=part.text or "")
    if part.type not in ("image_url", "input_image"):
        raise refused(f"{path}.type", f"is {shown_value(part.type)}; known: text and image parts")
    address = part.image_url.url if isinstance(part.image_url, ImageAddress) else part.image_url
    if not address or not address.startswith(_IMAGE_SCHEMES):
        raise refused(
            f"{path}.image_url",
            f"is {shown_value(address)}; allowed: an https: address, or a data: address",
        )
    return ImagePart(url=address)
