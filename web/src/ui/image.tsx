/** An image of the gateway, or one that is part of a message. Others would tell their server who reads this. */
const OWN = /^(?:\/api\/|data:image\/(?:png|jpeg|gif|webp);base64,)/;

export function ImageView({ url, name }: { url: string; name: string }) {
  if (!OWN.test(url)) {
    return /^https?:\/\//i.test(url) ? (
      <a class="file" href={url} target="_blank" rel="noopener noreferrer">
        {url}
      </a>
    ) : (
      <span class="file">{name}</span>
    );
  }
  return (
    <a href={url} target="_blank" rel="noopener noreferrer">
      <img class="media" src={url} alt={name} loading="lazy" />
    </a>
  );
}
