// Grafana's components measure text on a canvas before they draw it: its font has to be there by then.
const FACES = { 400: 'Inter-Regular', 500: 'Inter-Medium' };

export async function loadFonts() {
  for (const [weight, file] of Object.entries(FACES)) {
    const face = new FontFace('Inter', `url(/public/fonts/inter/${file}.woff2)`, { weight });
    document.fonts.add(await face.load());
  }
}
